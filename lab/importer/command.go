package importer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"text/tabwriter"
	"time"

	"example.com/watertight/lab/retail"
	"example.com/watertight/platform/mtls"
)

// Inventory's address on this machine, tried when none is named.
const localInventory = "127.0.0.1:50054"

// Command is `lab import`: it reads a file in the Online Retail layout, says what was cleaned out of it, and brings the
// rest into the running shop.
type Command struct {
	File string `arg:"" name:"file" help:"Sales in the Online Retail CSV layout, plain or gzipped."`

	CheckoutAddr  string `placeholder:"HOST:PORT" help:"gRPC address of checkout; that of the shop that runs here, else 127.0.0.1:50051."`
	SearchAddr    string `placeholder:"HOST:PORT" help:"gRPC address of search; else 127.0.0.1:50052."`
	RecsAddr      string `placeholder:"HOST:PORT" help:"gRPC address of recs; else 127.0.0.1:50053."`
	InventoryAddr string `placeholder:"HOST:PORT" help:"gRPC address of inventory; else 127.0.0.1:50054 if something listens there, or stock is left out."`

	TLSCertFile string `name:"tls-cert-file" env:"TLS_CERT_FILE" placeholder:"FILE" help:"Certificate to show the services, where they want one."`
	TLSKeyFile  string `name:"tls-key-file" env:"TLS_KEY_FILE" placeholder:"FILE" help:"Its private key, in the same folder."`
	TLSCAFile   string `name:"tls-ca-file" env:"TLS_CA_FILE" placeholder:"FILE" help:"Authorities whose certificates the services have."`

	Stock   int64         `default:"0" help:"Stock of every product; 0 is what the file has sold, at least 100."`
	DryRun  bool          `help:"Only read the file and print the cleaning report."`
	Timeout time.Duration `default:"5m" help:"Give up after this long."`
	Output  string        `short:"o" enum:"table,json" default:"table" help:"table or json."`
}

// Help is the long help: what happens, and an example.
func (*Command) Help() string {
	return `Reads the whole file before anything is sent, so that a wrong file changes nothing.
Importing the same file again is safe and gives the same shop.

Example:
  lab import online-retail.csv.gz
  lab import --dry-run --output json online-retail.csv`
}

// Outcome is what `lab import --output json` prints.
type Outcome struct {
	Cleaning retail.Report `json:"cleaning"`
	Import   *Report       `json:"import"` // null after a dry run
	Seconds  float64       `json:"seconds"`
}

// Run imports the file and writes the report to out, with a progress bar on the way when out is a terminal.
func (c *Command) Run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("--timeout: not done after %v", c.Timeout))
	defer cancel()
	start := time.Now()
	bar := newBar(out)
	defer bar.clear()

	data, err := c.read(ctx, bar)
	if err != nil {
		return err
	}
	outcome := Outcome{Cleaning: data.Report}
	if !c.DryRun {
		identity, err := mtls.Open(mtls.Config{CertFile: c.TLSCertFile, KeyFile: c.TLSKeyFile, CAFile: c.TLSCAFile, Reload: time.Minute})
		if err != nil {
			return err
		}
		defer identity.Close(ctx)
		targets := c.targets(ctx)
		targets.TLS = identity
		report, err := Run(ctx, targets, data.Catalog, bar.imported)
		if err != nil {
			return err
		}
		outcome.Import = &report
	}
	outcome.Seconds = time.Since(start).Round(time.Millisecond).Seconds()
	bar.clear()
	if c.Output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(outcome)
	}
	return outcome.write(out)
}

func (c *Command) read(ctx context.Context, bar *bar) (*retail.Data, error) {
	var size int64
	if info, err := os.Stat(c.File); err == nil {
		size = info.Size()
	}
	return retail.ReadFile(ctx, c.File, retail.Options{
		Stock:    c.Stock,
		Progress: func(bytes int64) { bar.read(bytes, size) },
	})
}

// Found fills in the addresses that were not given with those of a shop that runs.
func (c *Command) Found(running Targets) {
	c.CheckoutAddr = cmp.Or(c.CheckoutAddr, running.Checkout)
	c.SearchAddr = cmp.Or(c.SearchAddr, running.Search)
	c.RecsAddr = cmp.Or(c.RecsAddr, running.Recs)
	c.InventoryAddr = cmp.Or(c.InventoryAddr, running.Inventory)
}

func (c *Command) targets(ctx context.Context) Targets {
	t := Targets{Search: c.SearchAddr, Checkout: c.CheckoutAddr, Recs: c.RecsAddr, Inventory: c.InventoryAddr}
	t.Checkout = cmp.Or(t.Checkout, "127.0.0.1:50051")
	t.Search = cmp.Or(t.Search, "127.0.0.1:50052")
	t.Recs = cmp.Or(t.Recs, "127.0.0.1:50053")
	if t.Inventory == "" && listens(ctx, localInventory) {
		t.Inventory = localInventory
	}
	return t
}

// listens says whether anything takes connections at the address of this machine.
func listens(ctx context.Context, addr string) bool {
	dialer := net.Dialer{Timeout: 300 * time.Millisecond}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// write prints the outcome for people.
func (o Outcome) write(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.TabIndent)
	row := func(n int64, what string) { fmt.Fprintf(table, "%d\t  %s\n", n, what) }
	r := o.Cleaning
	row(r.Lines, "lines")
	row(r.Cancellations, "cancellations left out")
	row(r.Returns, "returns left out")
	row(r.NonProducts, "lines left out: postage, fees and other non-products")
	row(r.BlankDescriptions, "lines left out: no description")
	row(r.StockNotes, "lines left out: a note of the warehouse for a description")
	row(r.PricesNotPositive, "lines left out: no price")
	row(r.BrokenLines, "broken lines skipped")
	row(r.SaleLines, "lines kept")
	row(r.SpellingsMerged, "ids that differed only in case, merged")
	row(r.Renamed, "products with several names, the most frequent kept")
	row(int64(r.Products), "products")
	row(int64(r.Invoices), "invoices, "+r.From.Format(time.DateOnly)+" to "+r.To.Format(time.DateOnly))
	row(int64(r.Customers), "customers")
	if o.Import != nil {
		for _, s := range o.Import.Services {
			row(s.Stored, s.Items+" stored by "+s.Service)
		}
		if n := o.Import.OversizedBaskets; n > 0 {
			row(int64(n), "baskets left out: too many products")
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, b := range r.FirstBroken {
		if _, err := fmt.Fprintf(out, "line %d: %s\n", b.Line, b.Reason); err != nil {
			return err
		}
	}
	verb := "imported"
	if o.Import == nil {
		verb = "read, nothing sent,"
	}
	_, err := fmt.Fprintf(out, "%s in %.1f s\n", verb, o.Seconds)
	return err
}
