package query

import (
	"errors"
	"testing"
	"unicode/utf8"
)

func TestParams_IntIsStrict(t *testing.T) {
	for raw, want := range map[string]struct {
		n    int32
		fail bool
	}{
		"":                               {20, false},
		"other=1":                        {20, false},
		"page_size=1":                    {1, false},
		"page_size=100":                  {100, false},
		"page_size=-1":                   {20, true},
		"page_size=0":                    {20, true},
		"page_size=101":                  {20, true},
		"page_size=2147483648":           {20, true},
		"page_size=9223372036854775808":  {20, true},
		"page_size=1e9":                  {20, true},
		"page_size=":                     {20, true},
		"page_size":                      {20, true},
		"page_size=abc":                  {20, true},
		"page_size=%2B5":                 {20, true},
		"page_size=+5":                   {20, true},
		"page_size=5_0":                  {20, true},
		"page_size=0x10":                 {20, true},
		"page_size=1.0":                  {20, true},
		"page_size=5&page_size=5":        {20, true},
		"page_size=%EF%BC%95":            {20, true}, // a full-width five
		"page_size=99999999999999999999": {20, true},
	} {
		p := Parse(raw)
		got := p.Int("page_size", 20, 1, 100)
		if (p.Err() != nil) != want.fail || (!want.fail && got != want.n) {
			t.Errorf("%q: got %d, %v; want %d, fail %v", raw, got, p.Err(), want.n, want.fail)
		}
		var wrong *Error
		if want.fail && (!errors.As(p.Err(), &wrong) || wrong.Param != "page_size") {
			t.Errorf("%q: error %v does not name page_size", raw, p.Err())
		}
	}
}

func TestParams_TextIsOnceAndUTF8(t *testing.T) {
	for raw, fail := range map[string]bool{
		"q=hanging+heart": false, "q=": false, "": false, "q=%E2%98%83": false,
		"q=%FF": true, "q=a&q=b": true, "q=%zz": true, "q=a;b": true,
	} {
		p := Parse(raw)
		got := p.Text("q")
		if (p.Err() != nil) != fail {
			t.Errorf("%q: got %q, %v; want fail %v", raw, got, p.Err(), fail)
		}
	}
}

func TestParams_TheFirstFaultIsTheOneReported(t *testing.T) {
	p := Parse("q=a&q=b&page_size=x")
	p.Text("q")
	p.Int("page_size", 20, 1, 100)
	if got, want := p.Err().Error(), "q: must be given at most once"; got != want {
		t.Errorf("Err() = %q, want %q", got, want)
	}
}

func FuzzParams(f *testing.F) {
	for _, seed := range []string{"", "q=a&page_size=5", "page_size=-1", "%", "q=%ff", "a;b", "page_size=5&page_size=6", "&&=&"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p := Parse(raw)
		text, n := p.Text("q"), p.Int("page_size", 20, 1, 100)
		if n < 1 || n > 100 {
			t.Fatalf("%q: page_size %d is out of range", raw, n)
		}
		if p.Err() == nil && !utf8.ValidString(text) {
			t.Fatalf("%q: text %q is not UTF-8", raw, text)
		}
	})
}
