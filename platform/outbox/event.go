package outbox

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/protobuf/proto"
)

// Schema is the goose migration that makes the tables. A service copies it into its own migrations: once applied, a
// migration is history and must not change with this package.
//
//go:embed schema.sql
var Schema string

// Event is what a transaction announces.
type Event struct {
	// ID is the event's for its whole life, the same at every delivery; a version 7 UUID keeps the table's index compact.
	ID uuid.UUID
	// Type is the full name of the payload's message.
	Type string
	// Subject is where the broker puts the event. Its first token is the name of the stream.
	Subject string
	// Payload is the encoded message.
	Payload []byte
}

// NewEvent returns an event with a new id that carries message.
func NewEvent(subject string, message proto.Message) (Event, error) {
	kind := string(message.ProtoReflect().Descriptor().FullName())
	id, err := uuid.NewV7()
	if err != nil {
		return Event{}, fmt.Errorf("make id for %s: %w", kind, err)
	}
	payload, err := proto.Marshal(message)
	if err != nil {
		return Event{}, fmt.Errorf("encode %s: %w", kind, err)
	}
	return Event{ID: id, Type: kind, Subject: subject, Payload: payload}, nil
}

// Append writes e in tx, together with the W3C trace context of ctx.
func Append(ctx context.Context, tx pgx.Tx, e Event) error {
	if _, err := tx.Exec(ctx, appendEvent, arguments(ctx, e)...); err != nil {
		return fmt.Errorf("append event %s to the outbox: %w", e.ID, err)
	}
	return nil
}

// Queue is Append for a transaction that is sent as one batch.
func Queue(ctx context.Context, batch *pgx.Batch, e Event) {
	batch.Queue(appendEvent, arguments(ctx, e)...)
}

func arguments(ctx context.Context, e Event) []any {
	creation := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, creation)
	return []any{e.ID, e.Type, e.Subject, present(e.Payload), creation.Get("traceparent"), creation.Get("tracestate")}
}

// present makes no bytes an empty value: a message of which no field is set is encoded as nothing, and nil is NULL.
func present(payload []byte) []byte {
	if payload == nil {
		return []byte{}
	}
	return payload
}
