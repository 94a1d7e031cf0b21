package contract_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	_ "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate" // the options
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/wrapperspb" // for a contract to import

	"example.com/watertight/platform/rpc/contract"
	"example.com/watertight/platform/rpcerr"
)

// kind is the kind of message M with what is in body, as a DescriptorProto is written, beside a message Amount with a number minor.
func kind(t *testing.T, body string) protoreflect.MessageDescriptor {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{}
	err := prototext.Unmarshal([]byte(`
		name: "m.proto" syntax: "proto3" dependency: "google/protobuf/wrappers.proto"
		message_type { name: "M" `+body+` }
		message_type { name: "Amount"
			field { name: "minor" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
			field { name: "word" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
		}`), file)
	if err != nil {
		t.Fatal(err)
	}
	built, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return built.Messages().ByName("M")
}

// field is a field in the body of M: its type, what else its descriptor says, and its rules.
func field(name, ofType, more, rules string) string {
	if !strings.Contains(more, "label:") {
		more += " label: LABEL_OPTIONAL"
	}
	return fmt.Sprintf(`field { name: %q number: %d type: TYPE_%s %s options { [buf.validate.field] { %s } } } `, name, name[0], ofType, more, rules)
}

// message is a message of the kind, as text.
func message(t *testing.T, d protoreflect.MessageDescriptor, text string) *dynamicpb.Message {
	t.Helper()
	m := dynamicpb.NewMessage(d)
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// broken are the fields at fault with what is wrong with them.
func broken(t *testing.T, rules *contract.Rules, m *dynamicpb.Message) []string {
	t.Helper()
	err := rules.Check(m)
	if err == nil {
		return nil
	}
	if status.Code(err) != codes.InvalidArgument || rpcerr.Reason(err) != rpcerr.InvalidArgument {
		t.Fatalf("got %v with reason %q, want INVALID_ARGUMENT", err, rpcerr.Reason(err))
	}
	var all []string
	for _, f := range rpcerr.Fields(err) {
		all = append(all, f.GetField()+": "+f.GetDescription())
	}
	if got := status.Convert(err).Message(); got != all[0] {
		t.Errorf("the error's own text is %q, want that of the first field, %q", got, all[0])
	}
	return all
}

const list = "label: LABEL_REPEATED "

// The texts are those of protovalidate, which test/contract compares with.
func TestCheck_TellsEachFieldThatBreaksARule(t *testing.T) {
	amount := `type_name: ".Amount"`
	for name, c := range map[string]struct {
		body, message string
		want          []string
	}{
		"a string's length":        {field("a", "STRING", "", "string { min_len: 2 max_len: 3 }"), `a: "éé"`, nil},
		"too short a string":       {field("a", "STRING", "", "string { min_len: 2 }"), `a: "é"`, []string{"a: must be at least 2 characters"}},
		"too long a string":        {field("a", "STRING", "", "string { max_len: 2 }"), `a: "ééé"`, []string{"a: must be at most 2 characters"}},
		"another form":             {field("a", "STRING", "", `string { pattern: "^b+$" min_len: 1 }`), ``, []string{"a: must be at least 1 characters", "a: does not match regex pattern `^b+$`"}},
		"a UUID":                   {field("a", "STRING", "", "string { uuid: true }"), `a: "0190F3a0-0000-7000-8000-00000000000a"`, nil},
		"no UUID":                  {field("a", "STRING", "", "string { uuid: true }"), `a: "0190f3a0-0000-7000-8000-00000000000g"`, []string{"a: must be a valid UUID"}},
		"an empty UUID":            {field("a", "STRING", "", "string { uuid: true }"), ``, []string{"a: value is empty, which is not a valid UUID"}},
		"a number in a range":      {field("a", "INT32", "", "int32 { gte: 0 lte: 5 }"), `a: 5`, nil},
		"above a range":            {field("a", "INT32", "", "int32 { gte: 1 lte: 5 }"), `a: 6`, []string{"a: must be greater than or equal to 1 and less than or equal to 5"}},
		"below a range":            {field("a", "INT64", "", "int64 { gte: 1 lte: 5 }"), ``, []string{"a: must be greater than or equal to 1 and less than or equal to 5"}},
		"less than the least":      {field("a", "INT64", "", "int64 { gte: 0 }"), `a: -1`, []string{"a: must be greater than or equal to 0"}},
		"more than the most":       {field("a", "INT64", "", "int64 { lte: 0 }"), `a: 1`, []string{"a: must be less than or equal to 0"}},
		"an unset number":          {`oneof_decl { name: "o" }` + field("a", "INT64", "oneof_index: 0", "int64 { gte: 1 }"), ``, nil},
		"a number set to nothing":  {`oneof_decl { name: "o" }` + field("a", "INT64", "oneof_index: 0", "int64 { gte: 1 }"), `a: 0`, []string{"a: must be greater than or equal to 1"}},
		"too few items":            {field("a", "STRING", list, "repeated { min_items: 1 }"), ``, []string{"a: must contain at least 1 item(s)"}},
		"too many, and bad ones":   {field("a", "STRING", list, "repeated { max_items: 1 items { string { max_len: 1 } } }"), `a: ["a", "bb"]`, []string{"a: must contain no more than 1 item(s)", "a[1]: must be at most 1 characters"}},
		"nothing required":         {field("a", "STRING", "", "required: true string { min_len: 3 }"), ``, []string{"a: value is required"}},
		"an unset message":         {field("a", "MESSAGE", amount, "required: true"), ``, []string{"a: value is required"}},
		"an expression":            {field("a", "MESSAGE", amount, `cel { id: "x" message: "must be positive" expression: "this.minor > 0" }`), `a { minor: 1 }`, nil},
		"a broken expression":      {field("a", "MESSAGE", amount, `cel { id: "x" message: "must be positive" expression: "this.minor > 0" }`), `a { }`, []string{"a: must be positive"}},
		"an expression of no one":  {field("a", "MESSAGE", amount, `cel { id: "x" message: "must be positive" expression: "this.minor > 0" }`), ``, nil},
		"an expression of an item": {field("a", "MESSAGE", list+amount, `repeated { items { cel { id: "x" message: "is too little" expression: "this.minor > -5" } } }`), `a { minor: -4 } a { minor: -5 }`, []string{"a[1]: is too little"}},
		"kinds within kinds":       {field("a", "STRING", "", "string { max_len: 1 }") + field("b", "MESSAGE", list+`type_name: ".M"`, "repeated { max_items: 2 }"), `a: "aa" b { } b { b { a: "bb" } }`, []string{"a: must be at most 1 characters", "b[1].b[0].a: must be at most 1 characters"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := kind(t, c.body)
			if diff := cmp.Diff(c.want, broken(t, &contract.Rules{}, message(t, d, c.message))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A rule that is passed over would be a promise that nobody keeps.
func TestLearn_RefusesWhatIsNotUnderstood(t *testing.T) {
	amount := `type_name: ".Amount"`
	expression := func(text string) string {
		return fmt.Sprintf(`cel { id: "x" message: "is wrong" expression: %q }`, text)
	}
	entry := `nested_type { name: "AEntry" options { map_entry: true }
		field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
		field { name: "value" number: 2 label: LABEL_OPTIONAL `
	aMap := list + `type_name: ".M.AEntry"`
	for name, c := range map[string]struct{ body, at, of string }{
		"a string's other rules":           {field("a", "STRING", "", "string { min_len: 1 min_bytes: 3 }"), "M.a", "min_bytes"},
		"a string's other forms":           {field("a", "STRING", "", "string { email: true }"), "M.a", "email"},
		"a broken pattern":                 {field("a", "STRING", "", `string { pattern: "(" }`), "M.a", "missing closing"},
		"a bound that is no part":          {field("a", "INT64", "", "int64 { gt: 1 }"), "M.a", "gt"},
		"a bound beside a known one":       {field("a", "INT32", "", "int32 { gte: 1 lt: 5 }"), "M.a", "lt"},
		"numbers outside of a range":       {field("a", "INT64", "", "int64 { gte: 5 lte: 1 }"), "M.a", "outside of a range"},
		"numbers of another kind":          {field("a", "UINT32", "", "uint32 { gte: 1 }"), "M.a", "uint32"},
		"truths":                           {field("a", "BOOL", "", "bool { const: true }"), "M.a", "bool"},
		"rules of another type":            {field("a", "STRING", "", "int64 { gte: 1 }"), "M.a", "int64"},
		"no rules, of another type":        {field("a", "STRING", "", "int64 { }"), "M.a", "int64"},
		"rules of a value for a list":      {field("a", "STRING", list, "string { min_len: 1 }"), "M.a", "string"},
		"rules of a list for a value":      {field("a", "STRING", "", "repeated { min_items: 1 }"), "M.a", "repeated"},
		"a list's other rules":             {field("a", "STRING", list, "repeated { unique: true }"), "M.a", "unique"},
		"an item's other rules":            {field("a", "STRING", list, "repeated { items { string { min_len: 1 suffix: \"x\" } } }"), "M.a", "suffix"},
		"required items":                   {field("a", "STRING", list, "repeated { items { required: true } }"), "M.a", "required"},
		"an expression of a list":          {field("a", "MESSAGE", list+amount, expression("this.minor > 0")), "M.a", "cel"},
		"what is to be ignored":            {field("a", "STRING", "", "ignore: IGNORE_IF_ZERO_VALUE string { min_len: 1 }"), "M.a", "ignore"},
		"another expression":               {field("a", "MESSAGE", amount, expression("this.minor >= 0")), "M.a", "this.minor >= 0"},
		"an expression without a message":  {field("a", "MESSAGE", amount, `cel { id: "x" expression: "this.minor > 0" }`), "M.a", "with a message"},
		"an expression by itself":          {field("a", "MESSAGE", amount, `cel_expression: "this.minor > 0"`), "M.a", "cel_expression"},
		"an expression of a number":        {field("a", "INT64", "", expression("this.minor > 0")), "M.a", "this.minor"},
		"an expression of no number":       {field("a", "MESSAGE", amount, expression("this.word > 0")), "M.a", "no whole number word"},
		"an expression of no field":        {field("a", "MESSAGE", amount, expression("this.major > 0")), "M.a", "no whole number major"},
		"an expression of no such number":  {field("a", "MESSAGE", amount, expression("this.minor > 9223372036854775808")), "M.a", "out of range"},
		"an expression of google's":        {field("a", "MESSAGE", `type_name: ".google.protobuf.Int64Value"`, expression("this.value > 0")), "M.a", "this.value"},
		"a string in a message of its own": {field("a", "MESSAGE", `type_name: ".google.protobuf.StringValue"`, "string { min_len: 1 }"), "M.a", "string"},
		"rules of a map":                   {entry + "type: TYPE_STRING } } " + field("a", "MESSAGE", aMap, "map { min_pairs: 1 }"), "M.a", "buf.validate.field"},
		"messages in a map":                {entry + `type: TYPE_MESSAGE type_name: ".Amount" } } field { name: "a" number: 1 type: TYPE_MESSAGE ` + aMap + " }", "M.a", "map"},
		"rules of a message":               {`options { [buf.validate.message] { ` + expression("true") + ` } }`, "M:", "buf.validate.message"},
		"rules of a oneof":                 {`oneof_decl { name: "o" options { [buf.validate.oneof] { required: true } } } field { name: "a" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }`, "M.o", "buf.validate.oneof"},
		"a rule in a message in a message": {
			`nested_type { name: "N" ` + field("b", "MESSAGE", list+`type_name: ".M"`, "") + field("c", "STRING", "", "string { len: 1 }") + `} ` +
				field("a", "MESSAGE", `type_name: ".M.N"`, ""), "M.N.c", "len",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, rules := kind(t, c.body), &contract.Rules{}
			for what, err := range map[string]error{"Learn": rules.Learn(d), "Check": rules.Check(dynamicpb.NewMessage(d))} {
				if err == nil || !strings.HasPrefix(err.Error(), c.at) || !strings.Contains(err.Error(), c.of) {
					t.Errorf("%s: got %v, want an error of %s about %q", what, err, c.at, c.of)
				}
				if _, told := status.FromError(err); told {
					t.Errorf("%s: got a status, %v, which would reach the client", what, err)
				}
			}
		})
	}
}

// A rule from a newer or another language of rules arrives as bytes that this program has no name for.
func TestLearn_RefusesOptionsThatItCannotRead(t *testing.T) {
	unread := protoreflect.RawFields{0xf8, 0xff, 0x3f, 1} // field 131071, the number 1
	for name, options := range map[string]func(*descriptorpb.DescriptorProto) protoreflect.ProtoMessage{
		"of a message": func(m *descriptorpb.DescriptorProto) protoreflect.ProtoMessage { return m.GetOptions() },
		"of a oneof": func(m *descriptorpb.DescriptorProto) protoreflect.ProtoMessage {
			return m.GetOneofDecl()[0].GetOptions()
		},
		"of a field": func(m *descriptorpb.DescriptorProto) protoreflect.ProtoMessage { return m.GetField()[0].GetOptions() },
	} {
		t.Run(name, func(t *testing.T) {
			file := protodesc.ToFileDescriptorProto(kind(t, `options { } oneof_decl { name: "o" options { } }
				field { name: "a" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 options { } }`).ParentFile())
			options(file.GetMessageType()[0]).ProtoReflect().SetUnknown(unread)
			built, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
			if err != nil {
				t.Fatal(err)
			}
			rules := contract.Rules{}
			if err := rules.Learn(built.Messages().Get(0)); err == nil || !strings.Contains(err.Error(), "cannot read") {
				t.Errorf("got %v, want an error about options that cannot be read", err)
			}
		})
	}
}

func TestLearn_LetsMapsWithoutMessagesPass(t *testing.T) {
	rules := contract.Rules{}
	d := kind(t, `nested_type { name: "AEntry" options { map_entry: true }
			field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
			field { name: "value" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL } }
		field { name: "a" number: 1 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".M.AEntry" }`)
	if err := rules.Learn(d); err != nil {
		t.Error(err)
	}
	if err := rules.Check(message(t, d, `a { key: "k" value: "v" }`)); err != nil {
		t.Error(err)
	}
}

// A list may be long, and an error travels in headers.
func TestCheck_ListsTenFieldsAtMost(t *testing.T) {
	d := kind(t, field("a", "STRING", list, "repeated { max_items: 3 items { string { max_len: 1 } } }")+
		field("b", "STRING", "", "required: true"))
	got := broken(t, &contract.Rules{}, message(t, d, strings.Repeat(`a: "long" `, 50)))
	if len(got) != 10 || got[0] != "a: must contain no more than 3 item(s)" || got[9] != "a[8]: must be at most 1 characters" {
		t.Errorf("got %d fields, %q, want the list and its first nine items", len(got), got)
	}
}

func TestCheck_ManyAtOnceLearnTheSameRules(t *testing.T) {
	d := kind(t, field("a", "MESSAGE", list+`type_name: ".M"`, "repeated { max_items: 1 }"))
	rules, bad := &contract.Rules{}, message(t, d, `a { a { } a { } }`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := rules.Check(bad); err == nil || !strings.Contains(err.Error(), "a[0].a: ") {
				t.Errorf("got %v, want a[0].a at fault", err)
			}
		})
	}
	all.Wait()
}
