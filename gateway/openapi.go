package gateway

import (
	_ "embed"
	"net/http"
	"strconv"
)

// openAPIDocument describes every address of the edge, in OpenAPI 3.1.
//
//go:embed openapi.json
var openAPIDocument []byte

// openAPI answers GET /api/v1/openapi.json.
func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Length", strconv.Itoa(len(openAPIDocument)))
	w.WriteHeader(http.StatusOK)
	w.Write(openAPIDocument) //nolint:errcheck // the client is gone; there is nobody to tell
	return nil
}
