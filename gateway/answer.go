package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// DegradedHeader lists the upstreams whose part is missing in an answer.
const DegradedHeader = "Watertight-Degraded"

// answerJSON sends a value. An error means that nothing was sent.
func answerJSON(w http.ResponseWriter, status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	w.Write(append(body, '\n')) //nolint:errcheck // the client is gone; there is nobody to tell
	return nil
}

// markDegraded says in a header what the answer goes without.
func markDegraded(w http.ResponseWriter, missing []string) {
	if len(missing) > 0 {
		w.Header().Set(DegradedHeader, strings.Join(missing, ", "))
	}
}
