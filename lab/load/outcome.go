package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
)

// Outcome is what became of a request, as its client sees it.
type Outcome string

// The outcomes.
const (
	OK       Outcome = "ok"
	Degraded Outcome = "degraded"  // answered without a part, which the Watertight-Degraded header names
	Rejected Outcome = "rejected"  // 503 or 429: turned away
	TimedOut Outcome = "timed_out" // the client gave up, or a 504 told it to
	Failed   Outcome = "error"     // any other answer
	Lost     Outcome = "lost"      // no answer: refused, reset, closed, or never sent
)

// Outcomes lists them, from good to bad.
func Outcomes() []Outcome { return []Outcome{OK, Degraded, Rejected, TimedOut, Failed, Lost} }

// Codes of what was not answered; those of answers are the problem's own, or http_502 where there is none.
const (
	CodeClientTimeout  = "client_timeout"
	CodeRefused        = "connection_refused"
	CodeReset          = "connection_reset"
	CodeClosed         = "connection_closed"
	CodeNetwork        = "network"
	CodeMalformed      = "malformed_answer"
	CodeNoOrder        = "order_without_id"
	CodeInFlightLimit  = "in_flight_limit"          // not sent: the generator has too many waiting
	CodeGeneratorLimit = "generator_out_of_sockets" // not sent: the generator's machine has no more
)

// judge finds the outcome of an answer, and a code for all but the good ones.
func judge(op Operation, a answer, err error) (Outcome, string) {
	if err != nil {
		return judgeError(err)
	}
	switch {
	case a.status == http.StatusServiceUnavailable, a.status == http.StatusTooManyRequests:
		return Rejected, a.code()
	case a.status == http.StatusGatewayTimeout:
		return TimedOut, a.code()
	case a.status >= http.StatusMultipleChoices:
		return Failed, a.code()
	case op == Checkout && a.order == "":
		return Failed, CodeNoOrder
	case a.degraded:
		return Degraded, ""
	default:
		return OK, ""
	}
}

func judgeError(err error) (Outcome, string) {
	var network net.Error
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return TimedOut, CodeClientTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return Lost, CodeRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Lost, CodeReset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Lost, CodeClosed
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EADDRNOTAVAIL):
		return Lost, CodeGeneratorLimit
	case network != nil:
		return Lost, CodeNetwork
	default:
		return Failed, CodeMalformed
	}
}

// again says whether a client that tries again would: not after an answer that will not change.
func (o Outcome) again(status int) bool {
	switch o {
	case OK, Degraded:
		return false
	case Failed:
		return status == 0 || status >= http.StatusInternalServerError
	default:
		return true
	}
}

// code is the problem's, or else the status.
func (a answer) code() string {
	if code := problemCode(a.problem); code != "" {
		return code
	}
	return fmt.Sprintf("http_%d", a.status)
}

// problemCode reads the stable code of an RFC 9457 problem; "" when it is none, or none of ours. It becomes a key of the
// result, so a long one is not believed.
func problemCode(body []byte) string {
	const longest = 64
	var problem struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(body, &problem) != nil || len(problem.Code) > longest {
		return ""
	}
	return problem.Code
}
