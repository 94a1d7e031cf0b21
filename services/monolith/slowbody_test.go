package monolith_test

import (
	"io"
	"net/http"
)

// slowBody is a request body that stops half-way until it is told to finish.
type slowBody struct {
	text     string
	finish   func()
	waitHalf func()
	reader   *io.PipeReader
	writer   *io.PipeWriter
}

func newSlowBody(text string) *slowBody {
	reader, writer := io.Pipe()
	sent, rest := make(chan struct{}), make(chan struct{})
	b := &slowBody{text: text, reader: reader, writer: writer}
	b.waitHalf = func() { <-sent }
	b.finish = func() { close(rest) }
	go func() {
		_, err := io.WriteString(writer, text[:len(text)/2]) // returns when the transport has taken it
		close(sent)
		<-rest
		if err == nil {
			_, err = io.WriteString(writer, text[len(text)/2:])
		}
		_ = writer.CloseWithError(err)
	}()
	return b
}

// post sends the order and returns the answer.
func (b *slowBody) post(s *shop) (answer, error) {
	r, err := http.NewRequest(http.MethodPost, s.url+"/api/v1/orders", b.reader)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Idempotency-Key", "slow")
	resp, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(read)}, err
}
