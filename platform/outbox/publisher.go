package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"example.com/watertight/platform/telemetry/names"
)

// The headers of a message in an atomic batch (NATS ADR-50), and the room that all headers may need in a message.
const (
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
	headerRoom          = 4096
)

// minAtomic is the fewest events that are worth an atomic batch. With sync_interval: always the broker took about 20 ms for
// a batch of any size and 1 ms for a message, so that below this one by one is faster.
const minAtomic = 20

// errIncomplete says that the broker's answer is not about the whole batch, as from a server that knows no batches.
var errIncomplete = errors.New("the broker did not take the batch as one")

// publisher hands events to the broker and learns of each whether the broker has it. It may be used from any goroutine.
type publisher struct {
	cfg     Config
	deps    Deps
	metrics *metrics
	js      jetstream.JetStream
	tracer  trace.Tracer
}

func newPublisher(cfg Config, deps Deps, m *metrics) (*publisher, error) {
	js, err := jetstream.New(deps.Conn, jetstream.WithPublishAsyncMaxPending(cfg.InFlight*maxBatch+1), jetstream.WithPublishAsyncTimeout(cfg.PublishTimeout))
	if err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	return &publisher{cfg: cfg, deps: deps, metrics: m, js: js, tracer: deps.TracerProvider.Tracer(scope)}, nil
}

// verdicts are what became of a batch.
type verdicts struct {
	published []uuid.UUID
	// unready are those that the broker could not take now, and why the last one was.
	unready []uuid.UUID
	because error
	// refused are those that the broker does not take, each with its reason.
	refused []uuid.UUID
	reasons []string
}

// settle notes the verdicts on rows that owner has claimed; buried becomes the number of new dead letters.
func (v verdicts) settle(b *pgx.Batch, cfg Config, owner string, buried *int) {
	if len(v.published) > 0 {
		b.Queue(markPublished, v.published)
	}
	if len(v.unready) > 0 {
		b.Queue(postpone, v.unready, owner, min(10*cfg.Poll, maxDelay), printable(v.because.Error()))
	}
	if len(v.refused) > 0 {
		b.Queue(noteRefusals, v.refused, v.reasons, owner, cfg.RefusalBackoff, cfg.MaxRefusals).Query(func(rows pgx.Rows) error {
			dead, err := pgx.CollectRows(rows, pgx.RowTo[bool])
			for _, d := range dead {
				if d {
					*buried++
				}
			}
			return err
		})
	}
}

// refusal says whether err is about the event: the broker is well and does not take it. That there is no stream for its
// subject, or that the stream is full, is about the broker, and time may mend it.
func refusal(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Code < http.StatusInternalServerError && api.Code != http.StatusTooManyRequests
	}
	return errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject)
}

// publish returns when the broker has answered for all rows, or after PublishTimeout, or when ctx ends.
func (p *publisher) publish(ctx context.Context, rows []row) verdicts {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.PublishTimeout)
	defer cancel()
	start := time.Now()
	spans := p.startSpans(ctx, rows)
	errs := make([]error, len(rows))
	for _, indices := range byStream(rows) {
		p.publishStream(ctx, rows, indices, errs)
	}
	p.metrics.publish.Observe(time.Since(start).Seconds())
	p.metrics.batch.Observe(float64(len(rows)))

	var v verdicts
	for i, err := range errs {
		switch {
		case err == nil:
			v.published = append(v.published, rows[i].ID)
		case refusal(err):
			v.refused, v.reasons = append(v.refused, rows[i].ID), append(v.reasons, printable(err.Error()))
		default:
			v.unready, v.because = append(v.unready, rows[i].ID), err
		}
		if err != nil {
			spans[i].RecordError(err)
			spans[i].SetStatus(codes.Error, "not published")
		}
		spans[i].End()
	}
	return v
}

// startSpans starts a span for each sending. It is no part of the trace in which the event came about, because the
// consumer goes on with that one; it links to it.
func (p *publisher) startSpans(ctx context.Context, rows []row) []trace.Span {
	spans := make([]trace.Span, len(rows))
	for i, r := range rows {
		//nolint:spancheck // ended with the batch
		_, spans[i] = p.tracer.Start(ctx, names.Send(r.Subject), trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithLinks(trace.LinkFromContext(r.creation(context.Background()))),
			trace.WithAttributes(append(r.attributes(), semconv.MessagingOperationTypeSend, semconv.MessagingOperationName("send"),
				semconv.CloudEventsEventSource(p.deps.Service))...))
	}
	return spans
}

// byStream groups the indices of rows by the first token of the subject, which is the stream's name.
func byStream(rows []row) map[string][]int {
	groups := make(map[string][]int, 1)
	for i, r := range rows {
		stream, _, _ := strings.Cut(r.Subject, ".")
		groups[stream] = append(groups[stream], i)
	}
	return groups
}

// publishStream publishes the rows with these indices, which are for one stream: as one batch, which costs the broker one
// write to the disk; and where it does not take that, because one of them is refused or was published before, one by one.
func (p *publisher) publishStream(ctx context.Context, rows []row, indices []int, errs []error) {
	batch := make([]int, 0, len(indices))
	single := make([]int, 0, len(indices))
	for _, i := range indices {
		if int64(len(rows[i].Payload)+headerRoom) > p.deps.Conn.MaxPayload() {
			single = append(single, i)
		} else {
			batch = append(batch, i)
		}
	}
	if len(batch) >= minAtomic {
		err := p.publishAtomically(ctx, rows, batch)
		switch {
		case err == nil:
			batch = nil
		case ctx.Err() != nil || !p.deps.Conn.IsConnected():
			for _, i := range batch {
				errs[i] = err
			}
			batch = nil
		}
	}
	p.publishSingly(ctx, rows, append(single, batch...), errs)
}

// publishAtomically returns nil when the broker has stored all of the rows; else it has stored none.
func (p *publisher) publishAtomically(ctx context.Context, rows []row, indices []int) error {
	id, last := nuid.Next(), len(indices)-1
	for n, i := range indices[:last] {
		if err := p.deps.Conn.PublishMsg(p.batched(rows[i], id, n+1)); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	commit := p.batched(rows[indices[last]], id, last+1)
	commit.Header[headerBatchCommit] = []string{"1"}
	reply, err := p.deps.Conn.RequestMsgWithContext(ctx, commit)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
		Batch string              `json:"batch"`
		Count int                 `json:"count"`
	}
	switch err := json.Unmarshal(reply.Data, &answer); {
	case err != nil:
		return fmt.Errorf("publish: acknowledgement: %w", err)
	case answer.Error != nil:
		return fmt.Errorf("publish: %w", answer.Error)
	case answer.Batch != id || answer.Count != len(indices):
		return errIncomplete
	}
	return nil
}

func (p *publisher) batched(r row, id string, sequence int) *nats.Msg {
	m := r.message(p.deps.Service)
	m.Header[headerBatchID] = []string{id}
	m.Header[headerBatchSequence] = []string{strconv.Itoa(sequence)}
	return m
}

// publishSingly sets the error of each of the rows with these indices. An acknowledgement that says "duplicate" is one:
// the broker has the event.
func (p *publisher) publishSingly(ctx context.Context, rows []row, indices []int, errs []error) {
	futures := make([]jetstream.PubAckFuture, len(indices))
	for n, i := range indices {
		future, err := p.js.PublishMsgAsync(rows[i].message(p.deps.Service), jetstream.WithRetryAttempts(0))
		if err != nil {
			errs[i] = fmt.Errorf("publish: %w", err)
			continue
		}
		futures[n] = future
	}
	for n, i := range indices {
		if futures[n] == nil {
			continue
		}
		select {
		case <-futures[n].Ok():
		case err := <-futures[n].Err():
			errs[i] = fmt.Errorf("publish: %w", err)
		case <-ctx.Done():
			errs[i] = fmt.Errorf("publish: no acknowledgement: %w", ctx.Err())
		}
	}
}
