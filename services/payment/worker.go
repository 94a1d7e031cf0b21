package payment

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/platform/telemetry/names"
	eventsv1 "example.com/watertight/proto/events/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
)

const (
	// leaseBound is how long a claim may take.
	leaseBound = 5 * time.Second
	// noteBound is how long it may take to store an answer, whatever happens to the process meanwhile.
	noteBound = time.Second
)

// worker asks the provider, with no transaction open. Any number of them may share a database.
//
//	pending ─charged─▶ charged ─called off─▶ refunded
//	   │  └──declined─▶ declined
//	   └─called off─▶ cancelled, or refunded when it turns out that the provider had charged
type worker struct {
	cfg      Config
	store    store
	provider Provider
	log      *slog.Logger
	tracer   trace.Tracer
	metrics  *metrics
	answered func() // told when the provider's answer is known and not stored yet
	told     func() // tells the relay of an event
	woken    chan struct{}
}

// wake tells the worker that a payment may have become due. It never blocks.
func (w *worker) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// run asks until ctx ends. What the provider is being asked then counts as unanswered.
func (w *worker) run(ctx context.Context) {
	slots := make(chan struct{}, w.cfg.InFlight)
	var asking sync.WaitGroup
	defer asking.Wait()
	failing := false
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		// Nobody else takes slots, so that these stay free.
		free := cap(slots) - len(slots)
		bounded, cancel := context.WithTimeout(ctx, leaseBound)
		leased, err := w.store.lease(bounded, 1+free, w.cfg.Lease)
		cancel()
		w.logOutage(ctx, failing, err)
		failing = err != nil
		for i, d := range leased {
			if i > 0 {
				slots <- struct{}{}
			}
			asking.Go(func() {
				defer func() { <-slots }()
				w.settle(ctx, d)
			})
		}
		if len(leased) == 0 {
			<-slots
		}
		if len(leased) <= free {
			w.pause(ctx)
		}
	}
}

// pause waits until a payment may be due.
func (w *worker) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-w.woken:
	case <-time.After(w.cfg.Poll):
	}
}

// logOutage logs when claiming begins to fail and when it works again, not each failure between.
func (w *worker) logOutage(ctx context.Context, failing bool, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !failing:
		w.log.WarnContext(ctx, "cannot look for payments that are due", "error", err)
	case err == nil && failing:
		w.log.InfoContext(ctx, "can look for payments that are due again")
	}
}

// outcome is what the provider's answer makes of a payment, and the event that tells of it, if any.
type outcome struct {
	status    status
	statement string
	arguments []any
	subject   string
	event     proto.Message
}

// settle asks the provider once and stores what it says. The answer is stored also while the process stops; when that
// fails the provider is asked again, and answers the same.
func (w *worker) settle(ctx context.Context, d due) {
	carrier := propagation.MapCarrier{"traceparent": d.traceparent, "tracestate": d.tracestate}
	ctx, span := w.tracer.Start(propagation.TraceContext{}.Extract(ctx, carrier), d.call(), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(names.RetryAttempt.Int(d.attempt)))
	defer span.End()
	o, err := w.ask(ctx, d)
	stopping := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteBound)
	defer cancel()
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "outcome unknown")
		w.askAgain(ctx, d, err, stopping)
		return
	}
	w.answered()
	span.SetAttributes(names.WorkOutcome.String(string(o.status)))
	news, err := w.store.note(ctx, o)
	if err != nil {
		w.log.WarnContext(ctx, "cannot store the provider's answer, it is asked again", "order_id", d.orderID, "error", err)
		return
	}
	if news {
		w.metrics.payments.WithLabelValues(string(o.status)).Inc()
		w.told()
	}
}

// call names what the provider is asked to do.
func (d due) call() string {
	if d.calledOff {
		return "call off"
	}
	return "charge"
}

// ask returns the outcome, or an error when it is unknown.
func (w *worker) ask(ctx context.Context, d due) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	if d.calledOff {
		return w.askToCallOff(ctx, d)
	}
	return w.askToCharge(ctx, d)
}

func (w *worker) askToCharge(ctx context.Context, d due) (outcome, error) {
	answer, err := w.provider.Charge(ctx, d.orderID, d.charge)
	id := d.orderID.String()
	switch {
	case err != nil:
		return outcome{}, fmt.Errorf("charge: %w", err)
	case answer.Charged:
		return outcome{charged, noteCharged, []any{d.orderID}, subjectCharged,
			&eventsv1.PaymentCharged{OrderId: id, Amount: &moneyv1.Money{Currency: d.charge.Currency, Minor: d.charge.Minor}}}, nil
	default:
		return outcome{declined, noteDeclined, []any{d.orderID, answer.Reason}, subjectDeclined,
			&eventsv1.PaymentDeclined{OrderId: id, Reason: answer.Reason}}, nil
	}
}

func (w *worker) askToCallOff(ctx context.Context, d due) (outcome, error) {
	given, err := w.provider.CallOff(ctx, d.orderID)
	switch {
	case err != nil:
		return outcome{}, fmt.Errorf("call off: %w", err)
	case given < d.charged:
		return outcome{}, fmt.Errorf("call off: the provider has given back %d of %d", given, d.charged)
	case given > 0:
		return outcome{refunded, noteRefunded, []any{d.orderID, given}, subjectRefunded,
			&eventsv1.PaymentRefunded{OrderId: d.orderID.String(), Amount: &moneyv1.Money{Currency: d.charge.Currency, Minor: given}}}, nil
	default:
		return outcome{status: cancelled, statement: noteCancelled, arguments: []any{d.orderID}}, nil
	}
}

// askAgain has the provider asked again: after a pause, or at once by whoever takes over from a process that stops.
func (w *worker) askAgain(ctx context.Context, d due, cause error, stopping bool) {
	pause := w.backoff(d.attempt)
	if stopping {
		pause = 0
	}
	trace.SpanFromContext(ctx).SetAttributes(names.WorkOutcome.String("unknown"))
	trace.SpanFromContext(ctx).AddEvent(names.RetryScheduled, trace.WithAttributes(names.RetryAfter.Float64(pause.Seconds())))
	w.metrics.unknown.Inc()
	w.log.WarnContext(ctx, "the provider's answer is unknown, it is asked again", "order_id", d.orderID, "attempt", d.attempt, "error", cause)
	if err := w.store.postpone(ctx, d, pause); err != nil {
		w.log.WarnContext(ctx, "the payment stays claimed until its lease ends", "order_id", d.orderID, "error", err)
	}
}

// backoff doubles with each attempt up to MaxBackoff, half of it at random.
func (w *worker) backoff(attempt int) time.Duration {
	d := min(w.cfg.Backoff<<min(attempt-1, 16), w.cfg.MaxBackoff)
	return d/2 + rand.N(d/2+1)
}
