package gateway

import (
	"net/http"
	"sync/atomic"

	"example.com/watertight/gateway/report"
)

// traffic counts what this replica answers, for the status. Prometheus has the same by route and status code.
type traffic struct {
	underWay atomic.Int64

	ok, refused, shed, failed atomic.Uint64
}

// begin counts a request that has come; the end, called once, says with which HTTP status it was answered.
func (t *traffic) begin() (end func(httpStatus int)) {
	t.underWay.Add(1)
	return func(httpStatus int) {
		t.underWay.Add(-1)
		t.class(httpStatus).Add(1)
	}
}

func (t *traffic) class(httpStatus int) *atomic.Uint64 {
	switch {
	case httpStatus == http.StatusServiceUnavailable || httpStatus == http.StatusTooManyRequests:
		return &t.shed
	case httpStatus >= http.StatusInternalServerError:
		return &t.failed
	case httpStatus >= http.StatusBadRequest:
		return &t.refused
	default:
		return &t.ok
	}
}

// status is what was counted; of the requests under way, the given number are event streams.
func (t *traffic) status(streams int) report.Gateway {
	return report.Gateway{
		// The two are not read at one moment.
		InFlight: max(0, int(t.underWay.Load())-streams), EventStreams: streams,
		Answers: map[string]uint64{
			report.AnswerOK: t.ok.Load(), report.AnswerRefused: t.refused.Load(), report.AnswerShed: t.shed.Load(), report.AnswerFailed: t.failed.Load(),
		},
	}
}
