package contract

import (
	"errors"
	"fmt"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// compiler reads the rules of a kind of message and of all kinds within it. It keeps those that it has begun, since a message may hold
// others of its own kind.
type compiler map[protoreflect.MessageDescriptor]*kind

func (c compiler) kind(d protoreflect.MessageDescriptor) (*kind, error) {
	if k, begun := c[d]; begun {
		return k, nil
	}
	k := &kind{}
	c[d] = k
	if err := refuse(d, validate.E_Message); err != nil {
		return nil, err
	}
	for i := range d.Oneofs().Len() {
		if err := refuse(d.Oneofs().Get(i), validate.E_Oneof); err != nil {
			return nil, err
		}
	}
	for i := range d.Fields().Len() {
		f, err := c.field(d.Fields().Get(i))
		if err != nil {
			return nil, err
		}
		if f.required || f.rules != nil || f.items != nil || f.message != nil {
			k.fields = append(k.fields, f)
		}
	}
	return k, nil
}

// refuse returns an error when d has rules in the option, or options that cannot be read and so may be rules.
func refuse(d protoreflect.Descriptor, option protoreflect.ExtensionType) error {
	switch options := d.Options().ProtoReflect(); {
	case len(options.GetUnknown()) > 0:
		return fmt.Errorf("%s: has options that this program cannot read", d.FullName())
	case options.Has(option.TypeDescriptor()):
		return fmt.Errorf("%s: rules in %s are not understood", d.FullName(), option.TypeDescriptor().FullName())
	}
	return nil
}

func (c compiler) field(d protoreflect.FieldDescriptor) (f field, err error) {
	if d.IsMap() {
		return f, refuseMap(d)
	}
	f = field{FieldDescriptor: d, name: string(d.Name())}
	if err := f.compile(); err != nil {
		return f, fmt.Errorf("%s: %w", d.FullName(), err)
	}
	if d.Message() != nil {
		f.message, err = c.kind(d.Message())
	}
	return f, err
}

// refuseMap lets a map pass that there is nothing to check in.
func refuseMap(d protoreflect.FieldDescriptor) error {
	if d.MapValue().Message() != nil {
		return fmt.Errorf("%s: messages in a map are not checked", d.FullName())
	}
	return refuse(d, validate.E_Field)
}

func (f *field) compile() (err error) {
	options := f.Options()
	if len(options.ProtoReflect().GetUnknown()) > 0 {
		return errors.New("has options that this program cannot read")
	}
	if !proto.HasExtension(options, validate.E_Field) {
		return nil
	}
	stated, ok := proto.GetExtension(options, validate.E_Field).(*validate.FieldRules)
	if !ok {
		return errors.New("has rules that this program cannot read")
	}
	stated = proto.CloneOf(stated) // whatever is understood is taken out of it
	f.required = stated.GetRequired()
	stated.ClearRequired()
	if f.IsList() {
		f.rules, f.items, err = listRules(stated, f)
		return err
	}
	f.rules, err = valueRules(stated, f)
	return err
}

// listRules returns what is asked of a list, and of each of its items.
func listRules(stated *validate.FieldRules, f protoreflect.FieldDescriptor) (rules, items []rule, err error) {
	list := stated.GetRepeated()
	if list == nil {
		return nil, nil, leftOver(stated)
	}
	if list.HasItems() {
		if items, err = valueRules(list.GetItems(), f); err != nil {
			return nil, nil, err
		}
		list.ClearItems()
	}
	rules, err = lengths(list)
	stated.ClearType()
	return rules, items, errors.Join(err, leftOver(stated))
}

// valueRules returns what is asked of a single value, in the order in which protovalidate tells of it.
func valueRules(stated *validate.FieldRules, f protoreflect.FieldDescriptor) (rules []rule, err error) {
	for _, cel := range stated.GetCel() {
		r, err := comparison(cel, f.Message())
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	stated.SetCel(nil)
	typed, err := typedRules(stated, f.Kind())
	return append(rules, typed...), errors.Join(err, leftOver(stated))
}

// typedRules leaves rules alone that are of another type than the value.
func typedRules(stated *validate.FieldRules, of protoreflect.Kind) (rules []rule, err error) {
	switch {
	case of == protoreflect.StringKind && stated.HasString():
		rules, err = texts(stated.GetString())
	case of == protoreflect.Int32Kind && stated.HasInt32():
		rules, err = numbers[int32](stated.GetInt32())
	case of == protoreflect.Int64Kind && stated.HasInt64():
		rules, err = numbers[int64](stated.GetInt64())
	default:
		return nil, nil
	}
	stated.ClearType()
	return rules, err
}

// leftOver returns an error when there is a rule in what is left of stated.
func leftOver(stated proto.Message) error {
	if proto.Size(stated) == 0 {
		return nil
	}
	return fmt.Errorf("rules that are not understood: %v", stated)
}
