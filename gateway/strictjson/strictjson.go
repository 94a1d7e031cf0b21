// Package strictjson reads a request body into a struct and takes nothing that the struct does not ask for: unknown,
// repeated or differently-cased keys, values of another type, numbers that do not fit, invalid UTF-8 and anything behind
// the value are errors that name the field. It reads no more than the limit, however much is sent.
//
// It stands on the mirror of Go's encoding/json/v2, which is strict where encoding/json is lenient; what is left to do
// here is to say what is wrong in a client's words.
package strictjson

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxBytes is the most a body may have, 1 MiB.
const MaxBytes = 1 << 20

// Errors that are about the body as a whole.
var (
	// ErrTooLarge means that the body is longer than MaxBytes.
	ErrTooLarge = errors.New("the body must not be longer than 1 MiB")
	// ErrTooSlow means that the server's read timeout passed before the body was there.
	ErrTooSlow = errors.New("the body did not arrive in time")
	// ErrInterrupted means that the connection broke in the middle of the body.
	ErrInterrupted = errors.New("the body ended early")
)

// SyntaxError is a body that is not JSON, or is not the JSON that was asked for.
type SyntaxError struct {
	Field  string // path such as lines[0].quantity; empty when the body as a whole is meant
	Detail string
}

func (e *SyntaxError) Error() string {
	if e.Field == "" {
		return e.Detail
	}
	return e.Field + ": " + e.Detail
}

// Decode reads the request's body, one JSON object, into out, a pointer to a struct. The error is a *SyntaxError,
// ErrTooLarge, ErrTooSlow or ErrInterrupted. Keys that are missing leave their fields as they were.
func Decode(w http.ResponseWriter, r *http.Request, out any) error {
	if r.ContentLength > MaxBytes {
		w.Header().Set("Connection", "close") // nobody reads the rest
		return ErrTooLarge
	}
	err := decode(http.MaxBytesReader(w, r.Body, MaxBytes), out)
	if errors.Is(err, ErrTooLarge) {
		w.Header().Set("Connection", "close")
	}
	return err
}

func decode(body io.Reader, out any) error {
	err := json.UnmarshalRead(body, out, json.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	var (
		tooLarge *http.MaxBytesError
		semantic *json.SemanticError
		syntax   *jsontext.SyntacticError
	)
	switch {
	case errors.As(err, &tooLarge):
		return ErrTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrTooSlow
	case errors.As(err, &semantic):
		return &SyntaxError{Field: path(semantic.JSONPointer), Detail: meaning(semantic)}
	case errors.As(err, &syntax):
		return &SyntaxError{Field: path(syntax.JSONPointer), Detail: grammar(syntax)}
	default:
		return fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
}

// meaning says what is wrong with a value that is JSON.
func meaning(e *json.SemanticError) string {
	if errors.Is(e.Err, json.ErrUnknownName) {
		return "is not a field of this request"
	}
	if e.GoType == nil {
		return "is not valid here"
	}
	want := name(e.GoType)
	if errors.Is(e.Err, strconv.ErrRange) {
		return "must be " + want + " of at most 64 bits"
	}
	return "must be " + want
}

// name is the JSON word for a Go type.
func name(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	default:
		return "an object"
	}
}

// grammar says where the body stops being JSON.
func grammar(e *jsontext.SyntacticError) string {
	switch {
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return "is given more than once"
	case errors.Is(e.Err, io.ErrUnexpectedEOF):
		return "the JSON ends too early"
	default:
		return fmt.Sprintf("not valid JSON at byte %d: %s", e.ByteOffset, strings.TrimPrefix(e.Err.Error(), "jsontext: "))
	}
}

// path writes a JSON pointer (/lines/0/quantity) as the contracts write paths (lines[0].quantity).
func path(pointer jsontext.Pointer) string {
	var out strings.Builder
	for token := range pointer.Tokens() {
		if _, err := strconv.ParseUint(token, 10, 32); err == nil {
			out.WriteString("[" + token + "]")
			continue
		}
		if out.Len() > 0 {
			out.WriteByte('.')
		}
		out.WriteString(shorten(token))
	}
	return out.String()
}

// shorten bounds how much of a client's own key comes back to it.
func shorten(key string) string {
	const most = 64
	if len(key) <= most {
		return key
	}
	return strings.ToValidUTF8(key[:most], "") + "…"
}
