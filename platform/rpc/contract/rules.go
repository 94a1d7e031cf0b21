package contract

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf8"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// texts reads the rules of a string, and takes them out of r.
func texts(r *validate.StringRules) (rules []rule, err error) {
	if r.HasMinLen() {
		least := r.GetMinLen()
		rules = append(rules, rule{fmt.Sprintf("must be at least %d characters", least), func(v protoreflect.Value) bool { return characters(v) >= least }})
		r.ClearMinLen()
	}
	if r.HasMaxLen() {
		most := r.GetMaxLen()
		rules = append(rules, rule{fmt.Sprintf("must be at most %d characters", most), func(v protoreflect.Value) bool { return characters(v) <= most }})
		r.ClearMaxLen()
	}
	if r.HasPattern() {
		pattern, err := regexp.Compile(r.GetPattern())
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule{
			fmt.Sprintf("does not match regex pattern `%s`", r.GetPattern()),
			func(v protoreflect.Value) bool { return pattern.MatchString(v.String()) },
		})
		r.ClearPattern()
	}
	if r.GetUuid() {
		rules = append(rules, uuid()...)
		r.ClearUuid()
	}
	return rules, leftOver(r)
}

func characters(v protoreflect.Value) uint64 { return uint64(utf8.RuneCountInString(v.String())) }

// uuid is two rules, of which at most one is broken.
func uuid() []rule {
	form := regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)
	return []rule{
		{"value is empty, which is not a valid UUID", func(v protoreflect.Value) bool { return v.String() != "" }},
		{"must be a valid UUID", func(v protoreflect.Value) bool { return v.String() == "" || form.MatchString(v.String()) }},
	}
}

// bounds are the rules of a number of the type N.
type bounds[N int32 | int64] interface {
	proto.Message
	HasGte() bool
	GetGte() N
	ClearGte()
	HasLte() bool
	GetLte() N
	ClearLte()
}

// numbers reads the rules of a number, a least, a most or both, and takes them out of r.
func numbers[N int32 | int64](r bounds[N]) ([]rule, error) {
	hasLeast, least, hasMost, most := r.HasGte(), int64(r.GetGte()), r.HasLte(), int64(r.GetLte())
	if hasLeast && hasMost && least > most {
		return nil, fmt.Errorf("numbers outside of a range are not understood: %v", r)
	}
	r.ClearGte()
	r.ClearLte()
	var text string
	switch {
	case hasLeast && hasMost:
		text = fmt.Sprintf("must be greater than or equal to %d and less than or equal to %d", least, most)
	case hasLeast:
		text = fmt.Sprintf("must be greater than or equal to %d", least)
	case hasMost:
		text = fmt.Sprintf("must be less than or equal to %d", most)
	default:
		return nil, leftOver(r)
	}
	return []rule{{text, func(v protoreflect.Value) bool {
		return (!hasLeast || v.Int() >= least) && (!hasMost || v.Int() <= most)
	}}}, leftOver(r)
}

// lengths reads the rules of a list's length, and takes them out of r.
func lengths(r *validate.RepeatedRules) (rules []rule, err error) {
	if r.HasMinItems() {
		least := r.GetMinItems()
		rules = append(rules, rule{
			fmt.Sprintf("must contain at least %d item(s)", least),
			func(v protoreflect.Value) bool { return uint64(v.List().Len()) >= least },
		})
		r.ClearMinItems()
	}
	if r.HasMaxItems() {
		most := r.GetMaxItems()
		rules = append(rules, rule{
			fmt.Sprintf("must contain no more than %d item(s)", most),
			func(v protoreflect.Value) bool { return uint64(v.List().Len()) <= most },
		})
		r.ClearMaxItems()
	}
	return rules, leftOver(r)
}

// comparison is the one form of expression that is understood: a whole number in a message is more than another.
func comparison(cel *validate.Rule, in protoreflect.MessageDescriptor) (rule, error) {
	parts := regexp.MustCompile(`^this\.(\w+) > (-?\d+)$`).FindStringSubmatch(cel.GetExpression())
	if parts == nil || cel.GetMessage() == "" {
		return rule{}, fmt.Errorf("expression %q is not of the form this.FIELD > NUMBER with a message", cel.GetExpression())
	}
	than, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return rule{}, fmt.Errorf("expression %q: %w", cel.GetExpression(), err)
	}
	number, err := wholeNumber(in, protoreflect.Name(parts[1]))
	if err != nil {
		return rule{}, fmt.Errorf("expression %q: %w", cel.GetExpression(), err)
	}
	return rule{cel.GetMessage(), func(v protoreflect.Value) bool { return v.Message().Get(number).Int() > than }}, nil
}

// wholeNumber returns the field of that name, of a message that is one of ours: expressions read google's own as other things.
func wholeNumber(in protoreflect.MessageDescriptor, name protoreflect.Name) (protoreflect.FieldDescriptor, error) {
	if in == nil || in.ParentFile().Package() == "google.protobuf" {
		return nil, errors.New("is not of a message's field")
	}
	number := in.Fields().ByName(name)
	if number == nil || number.IsList() || (number.Kind() != protoreflect.Int32Kind && number.Kind() != protoreflect.Int64Kind) {
		return nil, fmt.Errorf("%s has no whole number %s", in.FullName(), name)
	}
	return number, nil
}
