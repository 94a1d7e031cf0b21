// Package route is the form in which the parts of the edge hand their routes to it. The edge, not the handler, sees to
// methods, deadlines, logs and metrics.
package route

import (
	"net/http"
	"time"
)

// Route is one method on one path.
type Route struct {
	Method string // GET answers HEAD too
	// Path is a ServeMux path without method and host: /products/{id}, or /{$} for the root alone. It names the route in spans and metrics.
	// It does not end in a slash, which would bring redirects; but the path "/" is for GETs that nothing else answers.
	Path string
	// Feature is the compartment that the route's work belongs to: shop.Checkout, shop.Search or shop.Recs. Empty for what
	// needs no service.
	Feature string
	// Budget is the longest that an answer may take, counted from the arrival of the request; 0 means no limit.
	Budget  time.Duration
	Handler http.Handler
}
