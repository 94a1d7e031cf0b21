package gateway

import (
	"net/http"

	"example.com/watertight/gateway/exchange"
	"example.com/watertight/gateway/problem"
)

// contentPolicy lets a page load what this shop serves and nothing else: no inline script or style, no frames, no other
// site. A page that needs a hash or a nonce sets its own header. For JSON it does nothing.
const contentPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// securityHeaders sets what browsers need to be told. There are no CORS headers: other sites have no business here.
func securityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
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
