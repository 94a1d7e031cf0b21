// Package sse writes server-sent events (HTML standard, section 9.2) so that a client that stopped reading holds nothing for
// long. It knows nothing of what is sent, and it does not buffer: who is slow is told the newest thing next, or cut off.
package sse

import (
	"fmt"
	"net/http"
	"time"
)

// ReconnectAfter is how long a browser is asked to wait before it comes back to a stream that ended.
const ReconnectAfter = time.Second

// Stream is one open stream; it belongs to the goroutine that answers the request.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
}

// Start sends the head of the answer, which is all that a HEAD request gets.
func Start(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies that buffer would hold events back
	w.WriteHeader(http.StatusOK)
}

// Open sends the head and the stream's first lines. Each write from then on may take as long as limit.
func Open(w http.ResponseWriter, limit time.Duration) (*Stream, error) {
	Start(w)
	s := &Stream{w: w, control: http.NewResponseController(w), limit: limit}
	// The server's read timeout is for the request, which is read; left alone, it would end the stream.
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("lift the read deadline: %w", err)
	}
	return s, s.write(fmt.Sprintf("retry: %d\n\n", ReconnectAfter.Milliseconds()))
}

// Send sends one event. data is one line, as JSON is.
func (s *Stream) Send(id int64, data []byte) error {
	return s.write(fmt.Sprintf("id: %d\ndata: %s\n\n", id, data))
}

// Heartbeat sends a comment, which clients ignore: it finds out whether anybody is there.
func (s *Stream) Heartbeat() error { return s.write(": still here\n\n") }

func (s *Stream) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.limit)); err != nil {
		return fmt.Errorf("set a write deadline: %w", err)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return fmt.Errorf("the client stopped reading: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("the client stopped reading: %w", err)
	}
	return nil
}
