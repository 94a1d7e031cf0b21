package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"example.com/watertight/lab/check"
)

type checkCommand struct {
	stateFlags
	Acked  string        `placeholder:"FILE" type:"existingfile" help:"File of acknowledged orders: on each line an id, or a JSON object with one in \"id\"."`
	Wait   time.Duration `default:"5s" help:"How long what is still on its way may take to arrive (${default})."`
	Output string        `short:"o" enum:"table,json" default:"table" help:"table or json."`

	CheckoutDatabaseURL  string `env:"CHECKOUT_DATABASE_URL" placeholder:"URL" help:"Database of checkout; without the three, those of the running shop."`
	InventoryDatabaseURL string `env:"INVENTORY_DATABASE_URL" placeholder:"URL" help:"Database of inventory."`
	PaymentDatabaseURL   string `env:"PAYMENT_DATABASE_URL" placeholder:"URL" help:"Database of payment."`
}

// Help is shown by lab check --help.
func (*checkCommand) Help() string {
	return `Reads the databases of checkout, inventory and payment and prints each invariant, how much was examined and how often it is
broken; exit code 1 when one is. It may be used while orders come in: it judges those that were there when it began.

Examples:
  lab check
  lab check --acked acked.txt --wait 30s
  lab check --output json
  lab check --checkout-database-url "$A" --inventory-database-url "$B" --payment-database-url "$C"`
}

// Run checks.
func (c *checkCommand) Run(ctx context.Context, out io.Writer) error {
	databases, err := c.databases()
	if err != nil {
		return err
	}
	acknowledged, err := c.acknowledged()
	if err != nil {
		return err
	}
	report, err := check.Run(ctx, databases, acknowledged, c.Wait)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = writeReport(out, report)
	}
	if broken := report.Broken(); err == nil && len(broken) > 0 {
		return fmt.Errorf("%d of %d invariants are broken: %s", len(broken), len(report.Invariants), strings.Join(broken, ", "))
	}
	return err
}

func (c *checkCommand) databases() (check.Databases, error) {
	d := check.Databases{Checkout: c.CheckoutDatabaseURL, Inventory: c.InventoryDatabaseURL, Payment: c.PaymentDatabaseURL}
	if d == (check.Databases{}) {
		_, dir, err := c.open()
		if err != nil {
			return d, err
		}
		instance, err := dir.ReadInstance()
		if err != nil {
			return d, err
		}
		urls := instance.Databases
		d = check.Databases{Checkout: urls["checkout"], Inventory: urls["inventory"], Payment: urls["payment"]}
	}
	for _, given := range [][2]string{{"checkout", d.Checkout}, {"inventory", d.Inventory}, {"payment", d.Payment}} {
		if given[1] == "" {
			return d, fmt.Errorf("the database of %[1]s is not known: it is not part of the running shop, or --%[1]s-database-url is missing beside the others",
				given[0])
		}
	}
	return d, nil
}

func (c *checkCommand) acknowledged() ([]uuid.UUID, error) {
	if c.Acked == "" {
		return nil, nil
	}
	file, err := os.Open(c.Acked)
	if err != nil {
		return nil, fmt.Errorf("--acked: %w", err)
	}
	ids, err := check.ReadAcknowledged(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("--acked %s: %w", c.Acked, err)
	}
	return ids, nil
}

// writeReport prints a line for each invariant, then examples of what breaks one.
func writeReport(out io.Writer, r check.Report) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "INVARIANT\tEXAMINED\tBROKEN\tMEANS")
	for _, i := range r.Invariants {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\n", i.Name, i.Examined, i.Violations, i.Means)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	for _, i := range r.Invariants {
		for _, example := range i.Examples {
			fmt.Fprintf(out, "%s: %s\n", i.Name, example)
		}
	}
	fmt.Fprintf(out, "orders: %s; acknowledged: %d; dead letters: %s\n", counts(r.Orders), r.Acknowledged, counts(r.DeadLetters))
	return nil
}

// counts writes "cancelled 2, confirmed 7".
func counts(of map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if of[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", name, of[name]))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
