// Package contract_test holds the platform's check of requests to the verdicts of protovalidate's own library, and measures both. The
// library judges here; no service links it.
package contract_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"example.com/watertight/platform/rpc/contract"
	"example.com/watertight/platform/rpcerr"
	_ "example.com/watertight/proto/checkout/v1"
	_ "example.com/watertight/proto/events/v1"
	_ "example.com/watertight/proto/inventory/v1"
	_ "example.com/watertight/proto/payment/v1"
	_ "example.com/watertight/proto/recs/v1"
	_ "example.com/watertight/proto/search/v1"
)

const (
	// perKind is how many messages of each kind are compared: enough for each rule to be broken, for certain.
	perKind = 3000
	// maxFields is how many fields an error lists.
	maxFields = 10
)

// Every kind of message of the shop's contracts, with values on both sides of every limit, gets the library's verdict: the same fields,
// in the same order, with the same words.
func TestContract_AgreesWithProtovalidate(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rules, kinds, valid, invalid, total := &contract.Rules{}, kinds(), 0, 0, 0
	for _, kind := range kinds {
		random, kept, broken := messages{rand.New(rand.NewPCG(seed, 1))}, 0, map[string]bool{}
		for range perKind {
			m := random.message(kind)
			violations := judge(t, m)
			if diff := cmp.Diff(texts(violations), check(t, rules, m)); diff != "" {
				t.Fatalf("seed %d: %s: (-library +ours):\n%s\nfor %v", seed, kind.Descriptor().FullName(), diff, m)
			}
			if len(violations) == 0 {
				kept++
			}
			for _, v := range violations {
				broken[limitOf(v)] = true
			}
		}
		valid, invalid = valid+kept, invalid+perKind-kept
		stated := limits(kind.Descriptor())
		total += len(stated)
		for _, limit := range stated {
			if !broken[limit] {
				t.Errorf("seed %d: no %s broke the rule of %s", seed, kind.Descriptor().FullName(), limit)
			}
		}
		if kept < perKind/100 {
			t.Errorf("seed %d: of %s, %d of %d messages kept to the rules: too few to say anything", seed, kind.Descriptor().FullName(), kept, perKind)
		}
	}
	t.Logf("%d kinds of messages with %d rules; %d messages valid, %d invalid", len(kinds), total, valid, invalid)
	if len(kinds) < 30 || total < 60 || invalid < 10*perKind {
		t.Errorf("seed %d: these are too few to say anything", seed)
	}
}

// kinds are all kinds of messages in the shop's contracts.
func kinds() (all []protoreflect.MessageType) {
	protoregistry.GlobalTypes.RangeMessages(func(kind protoreflect.MessageType) bool {
		file, ok := kind.Descriptor().ParentFile().Options().(interface{ GetGoPackage() string })
		if ok && strings.HasPrefix(file.GetGoPackage(), "example.com/watertight/proto/") {
			all = append(all, kind)
		}
		return true
	})
	slices.SortFunc(all, func(x, y protoreflect.MessageType) int {
		return strings.Compare(string(x.Descriptor().FullName()), string(y.Descriptor().FullName()))
	})
	return all
}

// limits are the rules that a kind of message states itself, each as the field's name and the rule's path.
func limits(kind protoreflect.MessageDescriptor) (all []string) {
	for i := range kind.Fields().Len() {
		f := kind.Fields().Get(i)
		stated, _ := proto.GetExtension(f.Options(), validate.E_Field).(*validate.FieldRules)
		for _, path := range paths(stated.ProtoReflect()) {
			all = append(all, string(f.Name())+" "+path)
		}
	}
	return all
}

func paths(rules protoreflect.Message) (all []string) {
	rules.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList():
			all = append(all, string(f.Name())+"[0]")
		case f.Message() != nil:
			for _, path := range paths(v.Message()) {
				all = append(all, string(f.Name())+"."+path)
			}
		default:
			all = append(all, string(f.Name()))
		}
		return true
	})
	return all
}

// limitOf is the rule that was broken, when it is one of the message itself. The library tells of a range by its lower end.
func limitOf(v *protovalidate.Violation) string {
	field, rule := v.Proto.GetField().GetElements(), protovalidate.FieldPathString(v.Proto.GetRule())
	if len(field) != 1 {
		return ""
	}
	if end, ok := strings.CutSuffix(rule, ".gte"); ok && v.FieldValue.Int() >= v.RuleValue.Int() {
		rule = end + ".lte"
	}
	return field[0].GetFieldName() + " " + rule
}

func judge(t *testing.T, m proto.Message) []*protovalidate.Violation {
	t.Helper()
	err := protovalidate.Validate(m)
	if err == nil {
		return nil
	}
	var found *protovalidate.ValidationError
	if !errors.As(err, &found) {
		t.Fatalf("the library cannot judge %T: %v", m, err)
	}
	return found.Violations
}

func texts(violations []*protovalidate.Violation) (all []string) {
	for _, v := range violations[:min(maxFields, len(violations))] {
		all = append(all, protovalidate.FieldPathString(v.Proto.GetField())+": "+v.Proto.GetMessage())
	}
	return all
}

func check(t *testing.T, rules *contract.Rules, m proto.Message) (all []string) {
	t.Helper()
	err := rules.Check(m)
	for _, f := range rpcerr.Fields(err) {
		all = append(all, f.GetField()+": "+f.GetDescription())
	}
	if err != nil && all == nil {
		t.Fatalf("%T cannot be checked: %v", m, err)
	}
	return all
}
