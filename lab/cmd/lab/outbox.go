package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/watertight/platform/outbox"
)

type outboxCommand struct {
	List  outboxListCommand  `cmd:"" help:"Show a service's dead letters: events that were given up."`
	Retry outboxRetryCommand `cmd:"" help:"Have dead letters published or handled once more."`
	Purge outboxPurgeCommand `cmd:"" help:"Remove dead letters for good."`
}

// outboxFlags are what the three have in common.
type outboxFlags struct {
	stateFlags
	Service  string        `arg:"" help:"The service whose database they are in: checkout, inventory, payment or recs."`
	Database string        `name:"database-url" placeholder:"URL" help:"The service's database; without it, that of the running shop."`
	Timeout  time.Duration `default:"30s" help:"Give up after this long (${default})."`
	Output   string        `short:"o" enum:"table,json" default:"table" help:"table or json."`
}

// use calls do with the service's database.
func (f outboxFlags) use(ctx context.Context, do func(ctx context.Context, pool *pgxpool.Pool) error) error {
	url, err := f.databaseURL()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.Timeout, fmt.Errorf("--timeout: no answer after %v", f.Timeout))
	defer cancel()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("database of %s: %w", f.Service, err)
	}
	defer pool.Close()
	if err := do(ctx, pool); err != nil {
		return fmt.Errorf("database of %s: %w", f.Service, err)
	}
	return nil
}

func (f outboxFlags) databaseURL() (string, error) {
	if f.Database != "" {
		return f.Database, nil
	}
	_, dir, err := f.open()
	if err != nil {
		return "", err
	}
	instance, err := dir.ReadInstance()
	if err != nil {
		return "", err
	}
	url, ok := instance.Databases[f.Service]
	if !ok {
		return "", fmt.Errorf("the running shop has no database of a service %q", f.Service)
	}
	return url, nil
}

// changed prints how many dead letters a command has changed.
func (f outboxFlags) changed(out io.Writer, name, sentence string, n int64) error {
	if f.Output == "json" {
		return json.NewEncoder(out).Encode(map[string]any{"service": f.Service, name: n})
	}
	_, err := fmt.Fprintf(out, sentence+"\n", n, f.Service)
	return err
}

type outboxListCommand struct {
	outboxFlags
	Limit int `default:"100" help:"Show at most so many (${default})."`
}

// Help is shown by lab outbox list --help.
func (*outboxListCommand) Help() string {
	return `SIDE is published where the broker refused an event of the service's own, consumed where the service could not handle an
event of another's.

Examples:
  lab outbox list checkout
  lab outbox list inventory --output json`
}

// deadLetter is a dead letter as lab outbox list --output json prints it.
type deadLetter struct {
	ID        uuid.UUID `json:"id"`
	Side      string    `json:"side"`
	Subject   string    `json:"subject"`
	Type      string    `json:"type"`
	Payload   []byte    `json:"payload"` // base64
	CreatedAt time.Time `json:"created_at"`
	DeadAt    time.Time `json:"dead_at"`
	Attempts  int64     `json:"attempts"`
	LastError string    `json:"last_error"`
	Retrying  bool      `json:"retrying"`
}

// Run lists.
func (c *outboxListCommand) Run(ctx context.Context, out io.Writer) error {
	if c.Limit < 1 {
		return fmt.Errorf("--limit %d: must be at least 1", c.Limit)
	}
	return c.use(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		found, err := outbox.DeadLetters(ctx, pool, c.Limit)
		if err != nil {
			return err
		}
		if c.Output == "json" {
			return c.writeJSON(out, found)
		}
		if len(found) == 0 {
			_, err := fmt.Fprintf(out, "%s has no dead letters\n", c.Service)
			return err
		}
		table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, "ID\tSIDE\tSUBJECT\tATTEMPTS\tDEAD FOR\tERROR")
		for _, d := range found {
			what := d.LastError
			if d.Retrying {
				what = "(is retried) " + what
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%.120q\n", d.ID, d.Side, d.Subject, d.Attempts, age(time.Since(d.DeadAt)), what)
		}
		return table.Flush()
	})
}

func (c *outboxListCommand) writeJSON(out io.Writer, found []outbox.DeadLetter) error {
	letters := make([]deadLetter, 0, len(found))
	for _, d := range found {
		letters = append(letters, deadLetter{ID: d.ID, Side: d.Side, Subject: d.Subject, Type: d.Type, Payload: d.Payload,
			CreatedAt: d.CreatedAt, DeadAt: d.DeadAt, Attempts: d.Attempts, LastError: d.LastError, Retrying: d.Retrying})
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(map[string]any{"service": c.Service, "dead_letters": letters})
}

// outboxIDs picks the dead letters to change.
type outboxIDs struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Ids of the dead letters; all of the service's without any."`
}

func (i outboxIDs) parse() ([]uuid.UUID, error) {
	var ids []uuid.UUID
	for _, text := range i.IDs {
		id, err := uuid.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("id %q: must be a UUID, as lab outbox list shows it", text)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

type outboxRetryCommand struct {
	outboxFlags
	outboxIDs
}

// Help is shown by lab outbox retry --help.
func (*outboxRetryCommand) Help() string {
	return `The service takes them up within about a second. What fails again is a dead letter again.

Examples:
  lab outbox retry checkout
  lab outbox retry checkout 0198c2f4-7d5e-7c39-9d0c-0a8a5a3f5d11 --output json`
}

// Run retries.
func (c *outboxRetryCommand) Run(ctx context.Context, out io.Writer) error {
	ids, err := c.parse()
	if err != nil {
		return err
	}
	return c.use(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		n, err := outbox.Retry(ctx, pool, ids...)
		if err != nil {
			return err
		}
		return c.changed(out, "retried", "%d dead letters of %s are tried again", n)
	})
}

type outboxPurgeCommand struct {
	outboxFlags
	outboxIDs
}

// Help is shown by lab outbox purge --help.
func (*outboxPurgeCommand) Help() string {
	return `What the events were to bring about will not happen: lab check shows what is missing then.

Examples:
  lab outbox purge checkout 0198c2f4-7d5e-7c39-9d0c-0a8a5a3f5d11
  lab outbox purge checkout --output json`
}

// Run purges.
func (c *outboxPurgeCommand) Run(ctx context.Context, out io.Writer) error {
	ids, err := c.parse()
	if err != nil {
		return err
	}
	return c.use(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		n, err := outbox.Purge(ctx, pool, ids...)
		if err != nil {
			return err
		}
		return c.changed(out, "purged", "%d dead letters of %s are removed", n)
	})
}
