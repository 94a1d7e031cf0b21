// Package sandbox is a payment provider that moves no money: it decides by the payment token and keeps books, in tables of
// its own, that show every charge and refund. It stands in for a provider on the other side of the world, so nothing in
// payment may read its books, and it takes part in none of payment's transactions.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/watertight/platform/postgres"
	"example.com/watertight/services/payment"
)

// The tokens the sandbox knows; any other is declined.
const (
	OK       = "tok_ok"       // charged
	Declined = "tok_declined" // declined for lack of funds
	Timeout  = "tok_timeout"  // charged, and the answer is lost; asked again, it is known
	Slow     = "tok_slow"     // charged after SANDBOX_SLOW
	Flaky    = "tok_flaky"    // fails SANDBOX_FLAKY_TRIES times without a charge, then is charged
)

// Config is how the special tokens behave.
type Config struct {
	Slow       time.Duration `env:"SANDBOX_SLOW" envDefault:"1500ms" help:"how long the sandbox provider takes for tok_slow"`
	FlakyTries int           `env:"SANDBOX_FLAKY_TRIES" envDefault:"2" help:"how often the sandbox provider fails for tok_flaky before it charges"`
}

// Validate checks that neither is negative.
func (c Config) Validate() error {
	var errs []error
	if c.Slow < 0 {
		errs = append(errs, errors.New("SANDBOX_SLOW: must not be negative"))
	}
	if c.FlakyTries < 0 {
		errs = append(errs, errors.New("SANDBOX_FLAKY_TRIES: must not be negative"))
	}
	return errors.Join(errs...)
}

// Provider is the sandbox.
type Provider struct {
	cfg  Config
	pool *pgxpool.Pool
}

var _ payment.Provider = (*Provider)(nil)

// New returns a sandbox that keeps its books in the tables sandbox_keys and sandbox_ledger.
func New(cfg Config, pool *pgxpool.Pool) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Provider{cfg: cfg, pool: pool}, nil
}

const (
	// The row is locked from here on: calls for one key take turns.
	openKey = `-- name: SandboxOpenKey
INSERT INTO sandbox_keys AS k (key, state, tries) VALUES ($1, 'trying', $2)
ON CONFLICT (key) DO UPDATE SET tries = k.tries + $2 RETURNING state, reason, tries`

	closeKey = `-- name: SandboxCloseKey
UPDATE sandbox_keys SET state = $2, reason = $3 WHERE key = $1`

	enterCharge = `-- name: SandboxEnterCharge
INSERT INTO sandbox_ledger (key, kind, currency, amount) VALUES ($1, 'charge', $2, $3)`

	enterRefunds = `-- name: SandboxEnterRefunds
INSERT INTO sandbox_ledger (key, kind, currency, amount)
SELECT key, 'refund', currency, amount FROM sandbox_ledger WHERE key = $1 AND kind = 'charge'`

	sumRefunds = `-- name: SandboxSumRefunds
SELECT coalesce(sum(amount), 0)::bigint FROM sandbox_ledger WHERE key = $1 AND kind = 'refund'`
)

var errFlaky = errors.New("sandbox: temporarily out of order")

// key is what the sandbox knows of one.
type key struct {
	state, reason string
	tries         int
}

// Charge implements payment.Provider.
func (p *Provider) Charge(ctx context.Context, id uuid.UUID, c payment.Charge) (payment.Answer, error) {
	if c.Token == Slow {
		if err := wait(ctx, p.cfg.Slow); err != nil {
			return payment.Answer{}, err
		}
	}
	var answer payment.Answer
	var first, flaky bool
	err := postgres.InTx(ctx, p.pool, func(tx pgx.Tx) error {
		k, err := open(ctx, tx, id, 1)
		if err != nil {
			return err
		}
		first = k.state == "trying"
		if flaky = first && c.Token == Flaky && k.tries <= p.cfg.FlakyTries; flaky {
			return nil // the try is counted
		}
		if first {
			k, err = decide(ctx, tx, id, c)
		}
		answer = payment.Answer{Charged: k.state == "charged", Reason: k.reason}
		return err
	})
	switch {
	case err != nil:
		return payment.Answer{}, fmt.Errorf("sandbox: %w", err)
	case flaky:
		return payment.Answer{}, errFlaky
	case first && c.Token == Timeout:
		<-ctx.Done()
		return payment.Answer{}, fmt.Errorf("sandbox: no answer: %w", ctx.Err())
	}
	return answer, nil
}

// open locks the key for the transaction.
func open(ctx context.Context, tx pgx.Tx, id uuid.UUID, tries int) (key, error) {
	var k key
	if err := tx.QueryRow(ctx, openKey, id, tries).Scan(&k.state, &k.reason, &k.tries); err != nil {
		return key{}, fmt.Errorf("open key: %w", err)
	}
	return k, nil
}

// decide charges or declines, for good.
func decide(ctx context.Context, tx pgx.Tx, id uuid.UUID, c payment.Charge) (key, error) {
	k := key{state: "charged"}
	batch := &pgx.Batch{}
	switch c.Token {
	case OK, Timeout, Slow, Flaky:
		batch.Queue(enterCharge, id, c.Currency, c.Minor)
	case Declined:
		k = key{state: "declined", reason: "insufficient funds"}
	default:
		k = key{state: "declined", reason: "unknown payment token"}
	}
	batch.Queue(closeKey, id, k.state, k.reason)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return key{}, fmt.Errorf("decide: %w", err)
	}
	return k, nil
}

// CallOff implements payment.Provider.
func (p *Provider) CallOff(ctx context.Context, id uuid.UUID) (refunded int64, err error) {
	err = postgres.InTx(ctx, p.pool, func(tx pgx.Tx) error {
		k, err := open(ctx, tx, id, 0)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		if k.state == "charged" {
			batch.Queue(enterRefunds, id)
		}
		if k.state == "charged" || k.state == "trying" {
			batch.Queue(closeKey, id, "called_off", "the payment was called off")
		}
		batch.Queue(sumRefunds, id).QueryRow(func(row pgx.Row) error { return row.Scan(&refunded) })
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return 0, fmt.Errorf("sandbox: call off: %w", err)
	}
	return refunded, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("sandbox: no answer: %w", ctx.Err())
	case <-time.After(d):
		return nil
	}
}
