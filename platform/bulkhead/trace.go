package bulkhead

import (
	"errors"

	"go.opentelemetry.io/otel/trace"

	"example.com/watertight/platform/telemetry/names"
)

// Trace tells the span of the work how Acquire went: how long it stood in the queue, or that it was turned away. A span of
// work that found a free slot says nothing of the pool.
func (b *Bulkhead) Trace(span trace.Span, slot Slot, err error) {
	if !span.IsRecording() {
		return
	}
	switch {
	case err != nil:
		span.AddEvent(names.BulkheadRejected, trace.WithAttributes(
			names.BulkheadName.String(b.name), names.BulkheadRejection.String(rejection(err).String())))
	case slot.waited > 0:
		span.SetAttributes(names.BulkheadName.String(b.name), names.BulkheadQueueWait.Float64(slot.waited.Seconds()))
	}
}

// rejection is the reason of an error of Acquire.
func rejection(err error) reason {
	switch {
	case errors.Is(err, ErrFull):
		return full
	case errors.Is(err, ErrExpired):
		return expired
	}
	return cancelled
}
