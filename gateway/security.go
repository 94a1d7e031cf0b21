package gateway

import (
	"maps"
	"net/http"

	"example.com/watertight/gateway/exchange"
	"example.com/watertight/gateway/page"
	"example.com/watertight/gateway/problem"
)

// securityHeaders sets what browsers need to be told; a page with inline style sets a policy of its own, with its hash. There
// are no CORS headers: other sites have no business here.
func securityHeaders(next http.Handler) http.Handler {
	headers := http.Header{
		"Content-Security-Policy":      {page.Policy(nil, nil)},
		"X-Content-Type-Options":       {"nosniff"},
		"Referrer-Policy":              {"same-origin"},
		"Cross-Origin-Opener-Policy":   {"same-origin"},
		"Cross-Origin-Resource-Policy": {"same-origin"},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		maps.Copy(w.Header(), headers) // the answers share the values, which are replaced and never changed
		next.ServeHTTP(w, r)
	})
}

// sameOrigin refuses a request that changes something when a browser sends it on behalf of another site. Programs, which
// send no Origin, pass.
func sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := protection.Check(r); err != nil {
			exchange.Fail(w, r, problem.New(http.StatusForbidden, problem.CodeCrossOrigin, "another site may not ask for this"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
