package contract_test

import (
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"example.com/watertight/platform/rpc/contract"
	"example.com/watertight/platform/rpcerr"
)

// labels is a message with a list of texts, each of two characters at most.
func labels(t *testing.T, texts ...string) proto.Message {
	t.Helper()
	options := &descriptorpb.FieldOptions{}
	proto.SetExtension(options, validate.E_Field, validate.FieldRules_builder{Repeated: validate.RepeatedRules_builder{
		Items: validate.FieldRules_builder{String: validate.StringRules_builder{MaxLen: new(uint64(2))}.Build()}.Build(),
	}.Build()}.Build())
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("labels.proto"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: new("Labels"), Field: []*descriptorpb.FieldDescriptorProto{{
			Name: new("texts"), Number: new(int32(1)), Options: options,
			Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(),
		}}}},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(file.Messages().Get(0))
	list := m.Mutable(m.Descriptor().Fields().ByName("texts")).List()
	for _, text := range texts {
		list.Append(protoreflect.ValueOfString(text))
	}
	return m
}

func TestCheck_NamesTheFieldsAtFault(t *testing.T) {
	check, err := contract.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := check(labels(t, "a", "bb")); err != nil {
		t.Errorf("a message that keeps to the rules: got %v", err)
	}
	err = check(labels(t, "a", "long"))
	if status.Code(err) != codes.InvalidArgument || rpcerr.Reason(err) != rpcerr.InvalidArgument || !strings.Contains(err.Error(), "texts[1]: ") {
		t.Errorf("got %v with reason %q, want INVALID_ARGUMENT that begins with texts[1]", err, rpcerr.Reason(err))
	}
}

// A list may be long, and an error travels in headers.
func TestCheck_ListsTenFieldsAtMost(t *testing.T) {
	check, err := contract.New()
	if err != nil {
		t.Fatal(err)
	}
	err = check(labels(t, strings.Split(strings.Repeat("long ", 50), " ")...))
	if got := len(rpcerr.Fields(err)); got != 10 {
		t.Errorf("got %d fields in %v, want 10", got, err)
	}
}
