// Package contract holds messages against the rules that their .proto files state, in protovalidate's language. It knows the kinds of
// rules that this shop's contracts use and refuses a contract with any other, so that no rule is stated that nobody keeps; it knows no
// message. protovalidate's own library would bring an interpreter of expressions, a fifth of a service's program and of its memory at
// rest. test/contract holds both to the same verdicts, word for word.
package contract

import (
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"example.com/watertight/platform/rpcerr"
)

// maxFields is how many violated fields an error lists: errors travel in headers, which have limits.
const maxFields = 10

// Rules are the contracts of the kinds of messages that were met so far. The zero Rules is ready for use, by any number of goroutines.
type Rules struct {
	kinds sync.Map // protoreflect.MessageDescriptor → *kind
}

// Learn gets Rules ready to check messages of the kind d, and all that they may hold. Its error names a rule that is not understood.
func (r *Rules) Learn(d protoreflect.MessageDescriptor) error {
	_, err := r.of(d)
	return err
}

// Check returns INVALID_ARGUMENT with the fields at fault when m breaks its rules. An error without a status is Learn's.
func (r *Rules) Check(m proto.Message) error {
	k, err := r.of(m.ProtoReflect().Descriptor())
	if err != nil {
		return err
	}
	var found violations
	k.check(m.ProtoReflect(), &found)
	return found.err()
}

func (r *Rules) of(d protoreflect.MessageDescriptor) (*kind, error) {
	if k, ok := r.kinds.Load(d); ok {
		return k.(*kind), nil //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	k, err := compiler{}.kind(d)
	if err != nil {
		return nil, err
	}
	r.kinds.Store(d, k)
	return k, nil
}

// kind is a kind of message, with the fields that there is something to check in, in the order of the contract.
type kind struct{ fields []field }

type field struct {
	protoreflect.FieldDescriptor

	name     string // kept, since a descriptor looks for it anew each time
	required bool
	rules    []rule // of the value; of a list, for the list itself
	items    []rule // of each item of a list
	message  *kind  // of the value or of each item; nil when they are no messages
}

// rule is one thing that a contract asks of a value, and what is said of a value that does not keep to it.
type rule struct {
	text string
	kept func(v protoreflect.Value) bool
}

func (k *kind) check(m protoreflect.Message, found *violations) {
	for i := range k.fields {
		k.fields[i].check(m, found)
	}
}

// check passes over a field that is not set, if that can be told from one that is set to nothing.
func (f *field) check(m protoreflect.Message, found *violations) {
	before := len(*found)
	switch set := m.Has(f.FieldDescriptor); {
	case !set && f.required:
		found.add("value is required")
	case !set && f.HasPresence():
		return
	case f.IsList():
		f.checkList(m.Get(f.FieldDescriptor), found)
	default:
		f.checkValue(m.Get(f.FieldDescriptor), f.rules, found)
	}
	found.within(before, f.name)
}

func (f *field) checkList(v protoreflect.Value, found *violations) {
	check(v, f.rules, found)
	list := v.List()
	for i := 0; i < list.Len() && !found.full(); i++ {
		before := len(*found)
		f.checkValue(list.Get(i), f.items, found)
		if len(*found) > before {
			found.within(before, "["+strconv.Itoa(i)+"]")
		}
	}
}

func (f *field) checkValue(v protoreflect.Value, rules []rule, found *violations) {
	check(v, rules, found)
	if f.message == nil {
		return
	}
	before := len(*found)
	f.message.check(v.Message(), found)
	found.within(before, ".")
}

func check(v protoreflect.Value, rules []rule, found *violations) {
	for _, r := range rules {
		if !r.kept(v) {
			found.add(r.text)
		}
	}
}

type violation struct{ path, text string }

// violations are the first maxFields that were found.
type violations []violation

func (v *violations) full() bool { return len(*v) == maxFields }

// add notes what is wrong with the value in hand. Where it is, those add who hold it.
func (v *violations) add(text string) {
	if !v.full() {
		*v = append(*v, violation{text: text})
	}
}

// within puts a part of the path before the paths of those from the first on. So a message that keeps to its rules costs no path.
func (v *violations) within(first int, part string) {
	for i := first; i < len(*v); i++ {
		(*v)[i].path = part + (*v)[i].path
	}
}

func (v *violations) err() error {
	if len(*v) == 0 {
		return nil
	}
	fields := make([]rpcerr.Option, 0, len(*v))
	for _, one := range *v {
		fields = append(fields, rpcerr.Field(one.path, one.text))
	}
	first := (*v)[0]
	return rpcerr.New(codes.InvalidArgument, rpcerr.InvalidArgument, first.path+": "+first.text, fields...)
}
