package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// DegradedHeader lists the upstreams whose part is missing in an answer.
const DegradedHeader = "Watertight-Degraded"

// answerJSON sends a value. An error means that nothing was sent.
func (a *api) answerJSON(w http.ResponseWriter, status int, value any) error {
	body, ok := a.bodies.Get().(*bytes.Buffer)
	if !ok {
		body = new(bytes.Buffer)
	}
	defer a.bodies.Put(body)
	body.Reset()
	if err := json.NewEncoder(body).Encode(value); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	w.Write(body.Bytes()) //nolint:errcheck // the client is gone; there is nobody to tell
	return nil
}

// markDegraded says in a header what the answer goes without.
func markDegraded(w http.ResponseWriter, missing []string) {
	if len(missing) > 0 {
		w.Header().Set(DegradedHeader, strings.Join(missing, ", "))
	}
}
