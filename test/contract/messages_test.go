package contract_test

import (
	"math"
	"math/rand/v2"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// messages makes messages that keep to the contracts' rules, nearly keep to them, or break many.
type messages struct{ *rand.Rand }

// message is wild as a whole or in few places, so that messages with many fields are valid often enough.
func (r messages) message(kind protoreflect.MessageType) proto.Message {
	m := kind.New()
	r.fill(m, []int{2, 3, 20, 1000}[r.IntN(4)], 0)
	return m.Interface()
}

// fill sets fields; one in tame is odd: not set, or with a value at a limit or beyond it.
func (r messages) fill(m protoreflect.Message, tame, depth int) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		stated, _ := proto.GetExtension(f.Options(), validate.E_Field).(*validate.FieldRules)
		odd := r.IntN(tame) == 0
		switch {
		case odd && r.IntN(3) == 0, f.IsMap(), depth > 4:
		case f.IsList() && odd && depth == 0 && r.IntN(4) == 0:
			limits := []uint64{stated.GetRepeated().GetMinItems(), stated.GetRepeated().GetMaxItems()}
			r.fillList(m.Mutable(f).List(), f, stated, max(0, int(limits[r.IntN(2)])-1+r.IntN(3)), math.MaxInt) // of what keeps to the rules
		case f.IsList():
			r.fillList(m.Mutable(f).List(), f, stated, r.IntN(3), tame)
		case f.Message() != nil:
			r.fill(m.Mutable(f).Message(), tame, depth+1)
		default:
			m.Set(f, r.value(f, stated, odd))
		}
	}
}

func (r messages) fillList(list protoreflect.List, f protoreflect.FieldDescriptor, stated *validate.FieldRules, n, tame int) {
	for range n {
		if f.Message() == nil {
			list.Append(r.value(f, stated.GetRepeated().GetItems(), r.IntN(tame) == 0))
			continue
		}
		item := list.NewElement()
		r.fill(item.Message(), tame, 1)
		list.Append(item)
	}
}

func (r messages) value(f protoreflect.FieldDescriptor, stated *validate.FieldRules, odd bool) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(r.text(stated.GetString(), odd))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(r.number(odd, int64(stated.GetInt32().GetGte()), int64(stated.GetInt32().GetLte()))))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(r.number(odd, stated.GetInt64().GetGte(), stated.GetInt64().GetLte()))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(9)))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(r.Float64())
	}
	return f.Default()
}

func (r messages) text(stated *validate.StringRules, odd bool) string {
	const uuid = "0190f3a0-0000-7000-8000-00000000000a"
	if !odd {
		return []string{"GBP", uuid}[r.IntN(2)] // what most fields may hold; currencies and order ids, one of them
	}
	if r.IntN(3) == 0 {
		letter := []string{"a", "é", "\U0001f600"}[r.IntN(3)]
		return strings.Repeat(letter, max(0, int(stated.GetMaxLen())-1+r.IntN(3)))
	}
	words := []string{
		"", "", "a", " ", "gbp", "GB", "GBPX", "GBP\n", "\x00", "\x00", "x\x00y", "x\ny", "x\x1fy", "x\x7f", "x\u0080y", "é", strings.ToUpper(uuid), uuid + "a", uuid[1:],
		strings.ReplaceAll(uuid, "-", ""), "g" + uuid[1:], "{" + uuid + "}", "urn:uuid:" + uuid, "0190f3a0_0000-7000-8000-00000000000a",
	}
	return words[r.IntN(len(words))]
}

func (r messages) number(odd bool, least, most int64) int64 {
	if !odd {
		return 1 + r.Int64N(50)
	}
	limits := []int64{math.MinInt64, math.MinInt32, -1, 0, 1, 2, math.MaxInt32, math.MaxInt64, least - 1, least, least + 1, most - 1, most, most + 1}
	return limits[r.IntN(len(limits))]
}
