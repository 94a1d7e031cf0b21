package page

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
)

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "br, gzip": true, "GZIP;q=0.5": true, "gzip;q=0": false, "gzip; q=0.000": false, "gzip;q=x": false, "gzipped": false, "identity": false,
	} {
		if got := acceptsGzip(header); got != want {
			t.Errorf("%q: got %v, want %v", header, got, want)
		}
	}
}

func TestPolicy_NamesEachInlinePartAndAllowsNothingElse(t *testing.T) {
	style, script := Style("a{}"), Script("f()")
	if style.Element != "<style>a{}</style>" || script.Element != "<script>f()</script>" {
		t.Errorf("elements: %s, %s", style.Element, script.Element)
	}
	policy := Policy([]Inline{style}, []Inline{script})
	for content, directive := range map[string]string{"a{}": "style-src 'self' 'sha256-", "f()": "script-src 'self' 'sha256-"} {
		sum := sha256.Sum256([]byte(content))
		if want := directive + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
			t.Errorf("policy %q does not have %s", policy, want)
		}
	}
	for _, p := range []string{policy, Policy(nil, nil)} {
		if !strings.HasPrefix(p, "default-src 'none'; ") || strings.Contains(p, "unsafe") || strings.Contains(p, "*") || strings.Contains(p, "http") {
			t.Errorf("policy %q", p)
		}
	}
}
