package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/platform/broker"
)

// The headers of an event, besides the W3C's traceparent and tracestate: the attributes of CloudEvents in the form of its
// NATS binding.
const (
	headerVersion = "ce-specversion"
	headerID      = "ce-id"
	headerSource  = "ce-source"
	headerType    = "ce-type"
	headerTime    = "ce-time"
)

// Message is an event as it arrives.
type Message struct {
	ID        uuid.UUID
	Type      string
	Subject   string
	Payload   []byte
	CreatedAt time.Time
}

// Handler applies an event in tx, which also holds the event's id: what it does there happens once, however often the
// event is delivered. It must not commit, keep tx or do anything that a rollback does not undo, and it may run again. Its
// context carries the consumer's span and ends with the time that one event may take.
type Handler func(ctx context.Context, tx pgx.Tx, m Message) error

// Decode returns a handler for events whose payload is an M. One that is not is a permanent error.
func Decode[M any, P interface {
	*M
	proto.Message
}](handle func(ctx context.Context, tx pgx.Tx, message P) error) Handler {
	return func(ctx context.Context, tx pgx.Tx, m Message) error {
		message := P(new(M))
		if want := string(message.ProtoReflect().Descriptor().FullName()); m.Type != want {
			return Permanent(fmt.Errorf("event %s on %s is a %q, want %s", m.ID, m.Subject, m.Type, want))
		}
		if err := proto.Unmarshal(m.Payload, message); err != nil {
			return Permanent(fmt.Errorf("decode event %s on %s: %w", m.ID, m.Subject, err))
		}
		return handle(ctx, tx, message)
	}
}

// Permanent marks err as one that no further delivery of the event will mend. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ error }

func (p *permanent) Unwrap() error { return p.error }

func isPermanent(err error) bool { return errors.As(err, new(*permanent)) }

// row is an event as the database holds it, in the order of the columns of LeaseBatch.
type row struct {
	ID          uuid.UUID
	Type        string
	Subject     string
	Payload     []byte
	Traceparent string
	Tracestate  string
	CreatedAt   time.Time

	source string // the service it comes from; only on its way out of the broker
}

// message is the row as source sends it to the broker. The trace context is the one in which the event came about,
// unchanged; it is what the consumer goes on with.
func (r row) message(source string) *nats.Msg {
	id := r.ID.String()
	header := nats.Header{
		jetstream.MsgIDHeader: {id}, headerVersion: {"1.0"}, headerID: {id}, headerSource: {source},
		headerType: {r.Type}, headerTime: {r.CreatedAt.UTC().Format(time.RFC3339Nano)},
	}
	if r.Traceparent != "" {
		header["traceparent"] = []string{r.Traceparent}
	}
	if r.Tracestate != "" {
		header["tracestate"] = []string{r.Tracestate}
	}
	return &nats.Msg{Subject: r.Subject, Header: header, Data: r.Payload}
}

// creation returns ctx with the trace context in which the event came about.
func (r row) creation(ctx context.Context) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": r.Traceparent, "tracestate": r.Tracestate})
}

// attributes are what the spans of its sending and of its processing say alike.
func (r row) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("messaging.system", "nats"), semconv.MessagingDestinationName(r.Subject),
		semconv.MessagingMessageID(r.ID.String()), semconv.CloudEventsEventType(r.Type)}
}

func (r row) received() Message {
	return Message{ID: r.ID, Type: r.Type, Subject: r.Subject, Payload: r.Payload, CreatedAt: r.CreatedAt}
}

// delivered reads the row from a message. One without a usable id gets one that is the same at each of its deliveries,
// and an error.
func delivered(m jetstream.Msg, meta *jetstream.MsgMetadata) (row, error) {
	header := broker.Header(m.Headers())
	r := row{Type: header.Get(headerType), Subject: m.Subject(), Payload: present(m.Data()), CreatedAt: meta.Timestamp,
		Traceparent: header.Get("traceparent"), Tracestate: header.Get("tracestate"), source: header.Get(headerSource)}
	if created, err := time.Parse(time.RFC3339Nano, header.Get(headerTime)); err == nil {
		r.CreatedAt = created
	}
	id, err := uuid.Parse(header.Get(jetstream.MsgIDHeader))
	if err != nil {
		r.ID = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s/%d/%d", meta.Stream, meta.Sequence.Stream, meta.Timestamp.UnixNano()))
		return r, Permanent(fmt.Errorf("%s: not the id of an event: %w", jetstream.MsgIDHeader, err))
	}
	r.ID = id
	return r, nil
}
