package clientip

import (
	"net/http"
	"net/netip"
	"testing"
)

func TestOf_BelievesOnlyNamedProxies(t *testing.T) {
	trusted := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, tc := range map[string]struct {
		proxies   Proxies
		remote    string
		forwarded []string
		want      string
	}{
		"no proxies: the socket":                  {nil, "192.0.2.1:5000", []string{"203.0.113.9"}, "192.0.2.1"},
		"untrusted peer: the socket":              {trusted, "192.0.2.1:5000", []string{"203.0.113.9"}, "192.0.2.1"},
		"trusted peer: the last untrusted hop":    {trusted, "10.0.0.1:5000", []string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9"},
		"two proxies":                             {trusted, "10.0.0.1:5000", []string{"1.1.1.1, 203.0.113.9, 10.2.2.2"}, "203.0.113.9"},
		"two header lines":                        {trusted, "10.0.0.1:5000", []string{"1.1.1.1", "203.0.113.9"}, "203.0.113.9"},
		"garbage stops the walk":                  {trusted, "10.0.0.1:5000", []string{"203.0.113.9, <script>, 10.2.2.2"}, "10.2.2.2"},
		"no header":                               {trusted, "10.0.0.1:5000", nil, "10.0.0.1"},
		"only proxies":                            {trusted, "10.0.0.1:5000", []string{"10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		"with a port":                             {trusted, "10.0.0.1:5000", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		"IPv6":                                    {trusted, "[fd00::1]:5000", []string{"2001:db8::7"}, "2001:db8::7"},
		"IPv6 with a port":                        {trusted, "[fd00::1]:5000", []string{"[2001:db8::7]:4711"}, "2001:db8::7"},
		"IPv4 in IPv6 is the same client":         {trusted, "[::ffff:192.0.2.1]:5000", nil, "192.0.2.1"},
		"an IPv4-mapped proxy is trusted as IPv4": {trusted, "[::ffff:10.0.0.1]:5000", []string{"203.0.113.9"}, "203.0.113.9"},
		"a socket without an address":             {trusted, "@", nil, "invalid IP"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &http.Request{RemoteAddr: tc.remote, Header: http.Header{"X-Forwarded-For": tc.forwarded}}
			if got := tc.proxies.Of(r).String(); got != tc.want {
				t.Errorf("Of = %s, want %s", got, tc.want)
			}
		})
	}
}
