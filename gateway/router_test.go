package gateway

import (
	"testing"
	"time"
)

func TestParseTimeout_ReadsTheGRPCFormat(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"400m": 400 * time.Millisecond, "2S": 2 * time.Second, "1M": time.Minute, "1H": time.Hour, "5u": 5 * time.Microsecond, "7n": 7, "0m": 0,
		"99999999n": 99999999, "99999999H": 24 * time.Hour, "99999999M": 24 * time.Hour, "99999999S": 24 * time.Hour,
	} {
		if got, ok := parseTimeout(text); !ok || got != want {
			t.Errorf("parseTimeout(%q) = %v, %v; want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "1", "m", "-1m", "+1m", "1ms", "1.5S", "123456789m", " 1m", "1m\n", "1s", "0x1m"} {
		if got, ok := parseTimeout(text); ok {
			t.Errorf("parseTimeout(%q) = %v, want it refused", text, got)
		}
	}
}

func FuzzParseTimeout(f *testing.F) {
	f.Add("400m")
	f.Add("99999999H")
	f.Fuzz(func(t *testing.T, text string) {
		if d, ok := parseTimeout(text); d < 0 || d > 24*time.Hour || (!ok && d != 0) {
			t.Errorf("parseTimeout(%q) = %v, %v", text, d, ok)
		}
	})
}

func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"k", `"k"`, `"a\"b"`, `"`, `"a"b`, "", "\x00", "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		key, err := idempotencyKey([]string{header})
		if err != nil {
			return
		}
		for _, c := range []byte(key) {
			if c < ' ' || c > '~' {
				t.Fatalf("key %q of header %q is not printable ASCII", key, header)
			}
		}
	})
}

func TestIdempotencyKey_BothFormsNameTheSameKey(t *testing.T) {
	for header, want := range map[string]string{
		"abc": "abc", `"abc"`: "abc", `  "abc"  `: "abc", `"a\"b\\c"`: `a"b\c`, `""`: "", "": "", "a b": "a b", `a"b`: `a"b`,
	} {
		if got, err := idempotencyKey([]string{header}); err != nil || got != want {
			t.Errorf("idempotencyKey(%q) = %q, %v; want %q", header, got, err, want)
		}
	}
	for _, header := range []string{`"abc`, `"abc"d`, `"a\b"`, `"\`, `"`, "a\x01b", "é", "a\x7f"} {
		if got, err := idempotencyKey([]string{header}); err == nil {
			t.Errorf("idempotencyKey(%q) = %q, want it refused", header, got)
		}
	}
}
