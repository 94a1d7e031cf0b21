// Package contract holds messages against the rules that their .proto files state. It is apart from package rpc because its library is
// a fifth of a service's program, and a process that only calls others checks nothing. It knows no message.
package contract

import (
	"errors"
	"fmt"

	"buf.build/go/protovalidate"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/platform/rpcerr"
)

// maxFields is how many violated fields an error lists: errors travel in headers, which have limits.
const maxFields = 10

// New returns the check of a server's requests. Its error is INVALID_ARGUMENT with the fields at fault, or no status when the rules
// themselves are wrong.
func New() (check func(proto.Message) error, err error) {
	rules, err := protovalidate.New()
	if err != nil {
		return nil, fmt.Errorf("set up contract validation: %w", err)
	}
	return func(m proto.Message) error { return invalid(rules.Validate(m)) }, nil
}

// invalid turns the library's error into what a client is told.
func invalid(err error) error {
	var found *protovalidate.ValidationError
	if !errors.As(err, &found) {
		return err
	}
	var opts []rpcerr.Option
	var first string
	for i, v := range found.Violations[:min(maxFields, len(found.Violations))] {
		path, text := protovalidate.FieldPathString(v.Proto.GetField()), v.Proto.GetMessage()
		if i == 0 {
			first = path + ": " + text
		}
		opts = append(opts, rpcerr.Field(path, text))
	}
	return rpcerr.New(codes.InvalidArgument, rpcerr.InvalidArgument, first, opts...)
}
