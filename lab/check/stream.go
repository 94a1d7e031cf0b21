package check

import (
	"bytes"
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// compare orders ids as PostgreSQL does.
func compare(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// stream is a query's rows, one for each id and in the order of the ids, of which it holds the next one.
type stream[T any] struct {
	name  string
	rows  pgx.Rows
	scan  func(rows pgx.Rows) (uuid.UUID, T, error)
	id    *uuid.UUID // nil at the end
	value T
	fail  error
}

func open[T any](ctx context.Context, s *snapshot, scan func(pgx.Rows) (uuid.UUID, T, error), query string, args ...any) (*stream[T], error) {
	rows, err := s.tx.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("database of %s: %w", s.name, err)
	}
	out := &stream[T]{name: s.name, rows: rows, scan: scan}
	out.next()
	return out, nil
}

func (s *stream[T]) close() { s.rows.Close() }

// head is the next id.
func (s *stream[T]) head() *uuid.UUID { return s.id }

// take returns what belongs to id and goes on, or nil when the next row is another's.
func (s *stream[T]) take(id uuid.UUID) *T {
	if s.id == nil || *s.id != id {
		return nil
	}
	value := s.value
	s.next()
	return &value
}

func (s *stream[T]) next() {
	s.id = nil
	if !s.rows.Next() {
		return
	}
	id, value, err := s.scan(s.rows)
	if err != nil {
		s.fail = err
		return
	}
	s.id, s.value = &id, value
}

// err says why the rows ended, if that was not their end.
func (s *stream[T]) err() error {
	err := s.fail
	if err == nil {
		err = s.rows.Err()
	}
	if err != nil {
		return fmt.Errorf("database of %s: %w", s.name, err)
	}
	return nil
}

func scanOrder(rows pgx.Rows) (id uuid.UUID, o order, err error) {
	err = rows.Scan(&id, &o.status, &o.currency, &o.total, &o.old, &o.lines.products, &o.lines.quantities)
	return id, o, err
}

func scanReservation(rows pgx.Rows) (id uuid.UUID, r reservation, err error) {
	err = rows.Scan(&id, &r.status, &r.lines.products, &r.lines.quantities)
	return id, r, err
}

func scanPayment(rows pgx.Rows) (id uuid.UUID, p payment, err error) {
	err = rows.Scan(&id, &p.status, &p.currency, &p.amount, &p.charged, &p.refunded,
		&p.charges, &p.providerCharged, &p.providerRefunded, &p.providerCurrencies)
	return id, p, err
}

func scanSubject(rows pgx.Rows) (id uuid.UUID, subject string, err error) {
	err = rows.Scan(&id, &subject)
	return id, subject, err
}

func scanID(rows pgx.Rows) (id uuid.UUID, _ struct{}, err error) {
	err = rows.Scan(&id)
	return id, struct{}{}, err
}
