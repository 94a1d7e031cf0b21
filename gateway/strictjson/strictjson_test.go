package strictjson

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

type line struct {
	Product  string `json:"product_id"`
	Quantity int64  `json:"quantity"`
}

type order struct {
	Customer string `json:"customer_id"`
	Lines    []line `json:"lines"`
	Expected *int64 `json:"expected_total"`
}

const good = `{"customer_id":"c-1","lines":[{"product_id":"85123A","quantity":2}],"expected_total":510}`

func TestDecode_TakesAWholeOrder(t *testing.T) {
	var got order
	if err := decode(strings.NewReader(" \n"+good+" \n\t"), &got); err != nil {
		t.Fatal(err)
	}
	total := int64(510)
	want := order{Customer: "c-1", Lines: []line{{"85123A", 2}}, Expected: &total}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestDecode_RefusesWhatIsNotAskedForAndNamesTheField(t *testing.T) {
	for name, tc := range map[string]struct{ body, field, detail string }{
		"unknown key":              {`{"customer_id":"c","coupon":"x"}`, "coupon", "is not a field of this request"},
		"unknown key in a line":    {`{"lines":[{"price":1}]}`, "lines[0].price", "is not a field of this request"},
		"differently-cased key":    {`{"Customer_id":"c"}`, "Customer_id", "is not a field of this request"},
		"repeated key":             {`{"customer_id":"c","customer_id":"d"}`, "customer_id", "is given more than once"},
		"repeated key, escaped":    {`{"customer_id":"c","customer\u005fid":"d"}`, "customer_id", "is given more than once"},
		"repeated key in a line":   {`{"lines":[{"quantity":1},{"quantity":1,"quantity":2}]}`, "lines[1].quantity", "is given more than once"},
		"fraction":                 {`{"lines":[{"quantity":1.5}]}`, "lines[0].quantity", "must be an integer"},
		"whole number as fraction": {`{"lines":[{"quantity":1.0}]}`, "lines[0].quantity", "must be an integer"},
		"exponent":                 {`{"lines":[{"quantity":1e2}]}`, "lines[0].quantity", "must be an integer"},
		"number as string":         {`{"lines":[{"quantity":"1"}]}`, "lines[0].quantity", "must be an integer"},
		"2^63":                     {`{"lines":[{"quantity":9223372036854775808}]}`, "lines[0].quantity", "must be an integer of at most 64 bits"},
		"-2^63-1":                  {`{"lines":[{"quantity":-9223372036854775809}]}`, "lines[0].quantity", "must be an integer of at most 64 bits"},
		"string for an array":      {`{"lines":"x"}`, "lines", "must be an array"},
		"number for a string":      {`{"customer_id":7}`, "customer_id", "must be a string"},
		"array for the body":       {`[]`, "", "must be an object"},
		"string for the body":      {`"x"`, "", "must be an object"},
		"empty":                    {``, "", "the JSON ends too early"},
		"blanks":                   {" \n ", "", "the JSON ends too early"},
		"two objects":              {good + good, "", ""},
		"trailing word":            {good + " true", "", ""},
		"trailing NUL":             {good + "\x00", "", ""},
		"byte order mark":          {"\ufeff" + good, "", ""},
		"cut short":                {`{"customer_id":"c`, "customer_id", "the JSON ends too early"},
		"invalid UTF-8":            {"{\"customer_id\":\"\xff\"}", "customer_id", ""},
		"lone surrogate":           {`{"customer_id":"\ud800"}`, "customer_id", ""},
		"NaN":                      {`{"lines":[{"quantity":NaN}]}`, "lines[0].quantity", ""},
		"comment":                  {`{/* */"customer_id":"c"}`, "", ""},
		"trailing comma":           {`{"customer_id":"c",}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out order
			err := decode(strings.NewReader(tc.body), &out)
			got, ok := errors.AsType[*SyntaxError](err)
			if !ok {
				t.Fatalf("decode(%q) = %v, want a SyntaxError", tc.body, err)
			}
			if got.Field != tc.field {
				t.Errorf("field = %q, want %q (%v)", got.Field, tc.field, got)
			}
			if tc.detail != "" && got.Detail != tc.detail {
				t.Errorf("detail = %q, want %q", got.Detail, tc.detail)
			}
			if strings.Contains(got.Error(), "Go ") || strings.Contains(got.Error(), "jsontext") || got.Detail == "" {
				t.Errorf("the text speaks of our insides, or of nothing: %q", got.Error())
			}
		})
	}
}

func TestDecode_NestingIsBounded(t *testing.T) {
	deep := `{"lines":[` + strings.Repeat("[", 500_000)
	var out order
	if err := decode(strings.NewReader(deep), &out); err == nil {
		t.Error("half a million brackets were taken")
	}
	var anything struct {
		Value any `json:"value"`
	}
	err := decode(strings.NewReader(`{"value":`+strings.Repeat("[", 500_000)+strings.Repeat("]", 500_000)+"}"), &anything)
	if _, ok := errors.AsType[*SyntaxError](err); !ok {
		t.Errorf("nested arrays = %v, want a SyntaxError", err)
	}
}

// endless yields the head and then blanks for ever, and counts what was read.
type endless struct {
	head io.Reader
	read int64
}

func (e *endless) Read(p []byte) (int, error) {
	n, err := e.head.Read(p)
	if errors.Is(err, io.EOF) {
		for n = range p {
			p[n] = ' '
		}
		n = len(p)
	}
	e.read += int64(n)
	return n, nil
}

func (e *endless) Close() error { return nil }

func TestDecode_ABodyWithoutEndIsTooLargeInFlatMemory(t *testing.T) {
	for name, head := range map[string]string{
		"an order and blanks": good, "blanks": "", "one endless string": `{"customer_id":"` + strings.Repeat("x", 2<<20),
		"endless array": `{"lines":[` + strings.Repeat(`{"quantity":1},`, 200_000),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			body := &endless{head: strings.NewReader(head)}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
			r.ContentLength = -1
			w := httptest.NewRecorder()
			var out order
			if err := Decode(w, r, &out); !errors.Is(err, ErrTooLarge) {
				t.Fatalf("Decode = %v, want ErrTooLarge", err)
			}
			if got := w.Header().Get("Connection"); got != "close" {
				t.Errorf("Connection = %q, want close", got)
			}
			if body.read > 2*MaxBytes {
				t.Errorf("read %d bytes of the body, want at most about %d", body.read, MaxBytes)
			}
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
				t.Errorf("allocated %d bytes, want less than 32 MiB", grown)
			}
		})
	}
}

func TestDecode_AnAnnouncedLengthIsRefusedUnread(t *testing.T) {
	body := &endless{head: strings.NewReader(good)}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
	r.ContentLength = 100 << 20
	var out order
	if err := Decode(httptest.NewRecorder(), r, &out); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Decode = %v, want ErrTooLarge", err)
	}
	if body.read != 0 {
		t.Errorf("read %d bytes, want none", body.read)
	}
}

func TestDecode_ABrokenConnectionIsNotTheClientsSyntax(t *testing.T) {
	var out order
	err := decode(io.MultiReader(strings.NewReader(good[:20]), iotest.ErrReader(errors.New("reset"))), &out)
	if !errors.Is(err, ErrInterrupted) {
		t.Errorf("decode = %v, want ErrInterrupted", err)
	}
}

func TestDecode_ASlowBodyIsToldApart(t *testing.T) {
	var out order
	err := decode(io.MultiReader(strings.NewReader(good[:20]), iotest.ErrReader(os.ErrDeadlineExceeded)), &out)
	if !errors.Is(err, ErrTooSlow) {
		t.Errorf("decode = %v, want ErrTooSlow", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{good, "", "{}", `{"lines":[{}]}`, `{"customer_id":"\u0000"}`, good + "x", `{"lines":[{"quantity":1e400}]}`,
		"\xff", `{"\ud800":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		start := time.Now()
		var got order
		err := decode(bytes.NewReader(body), &got)
		if took := time.Since(start); took > 10*time.Second {
			t.Fatalf("took %v for %d bytes", took, len(body))
		}
		if err != nil {
			var wrong *SyntaxError
			if !errors.As(err, &wrong) || !utf8.ValidString(wrong.Error()) {
				t.Fatalf("decode(%q) = %v, want a SyntaxError in UTF-8", body, err)
			}
			return
		}
		if !utf8.ValidString(got.Customer) || !utf8.Valid(body) {
			t.Fatalf("invalid UTF-8 passed: %q", body)
		}
		for _, l := range got.Lines {
			if l.Quantity == math.MinInt64 && !bytes.Contains(body, []byte("-9223372036854775808")) {
				t.Fatalf("a number was bent: %q", body)
			}
		}
	})
}
