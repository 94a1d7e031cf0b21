package fault

import "google.golang.org/protobuf/reflect/protoreflect"

// matches reports whether message has, for each name in want, a field of that name and value, at any depth. A field that is
// not set has no value.
func matches(message protoreflect.Message, want map[string]string) bool {
	for name, value := range want {
		if !has(message, protoreflect.Name(name), value) {
			return false
		}
	}
	return true
}

func has(message protoreflect.Message, name protoreflect.Name, want string) bool {
	found := false
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		check := func(v protoreflect.Value) {
			if field.Message() != nil && !field.IsMap() {
				found = has(v.Message(), name, want)
			} else {
				found = field.Name() == name && text(field, v) == want
			}
		}
		switch {
		case field.IsMap():
			mapValue := field.MapValue()
			value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				if mapValue.Message() != nil {
					found = has(v.Message(), name, want)
				} else {
					found = field.Name() == name && text(mapValue, v) == want
				}
				return !found
			})
		case field.IsList():
			for i := 0; i < value.List().Len() && !found; i++ {
				check(value.List().Get(i))
			}
		default:
			check(value)
		}
		return !found
	})
	return found
}

// text is a value as a person writes it: an enum by its name, numbers in decimal.
func text(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	if field.Kind() == protoreflect.EnumKind {
		if known := field.Enum().Values().ByNumber(value.Enum()); known != nil {
			return string(known.Name())
		}
	}
	return value.String()
}
