// Package retail reads sales in the Online Retail layout, one CSV line per product sold, and turns them into a catalog
// and a list of invoices. It cleans as it reads, counts every line it leaves out and says why. It never guesses a layout
// it does not know, holds no line in memory, and sends nothing anywhere.
package retail

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"example.com/watertight/lab/catalog"
)

// Currency is the one the layout's prices are in; the files do not say.
const Currency = "GBP"

// MinStock is the least stock a product gets, however little of it was sold.
const MinStock = 100

// ErrLayout is wrapped by the error for a file that is not in the Online Retail layout.
var ErrLayout = errors.New("not in the Online Retail layout")

// ErrNoProducts is wrapped by the error for a file in the right layout that holds no sale of any product.
var ErrNoProducts = errors.New("no product was sold in this file")

// Options change how a file is read. The zero value is ready to use.
type Options struct {
	// Stock is the stock each product gets, in pieces; 0 means as many as were sold in the file, at least MinStock.
	Stock int64
	// Progress, when set, is told now and then how many bytes of the file have been read.
	Progress func(bytes int64)
}

// Data is what a file says.
type Data struct {
	// Catalog has the products by id, and a basket per invoice.
	Catalog catalog.Catalog
	// Invoices are the sales in the order they happened; those of the same minute by number.
	Invoices []Invoice
	Report   Report
}

// Invoice is one sale.
type Invoice struct {
	Number   string
	At       time.Time // as printed on the invoice, without a zone: read as UTC
	Customer string    // empty when not known
	Lines    []Line    // one per product, by product id
}

// Line is how much of one product an invoice sold.
type Line struct {
	Product  int32 // index into the catalog's Products
	Quantity int64 // pieces, at least 1
}

// Report counts what was read, what was left out and why. Each line is counted once, under the first rule that applies, in
// the order of the fields: Lines is the sum of SaleLines and the counts from BrokenLines to PricesNotPositive.
type Report struct {
	Lines     int64 `json:"lines"`      // below the header, blank ones aside
	SaleLines int64 `json:"sale_lines"` // kept

	BrokenLines       int64        `json:"broken_lines"`
	FirstBroken       []BrokenLine `json:"first_broken,omitempty"`
	Cancellations     int64        `json:"cancellations"`       // invoice number starts with C
	Returns           int64        `json:"returns"`             // quantity below 1 without being a cancellation
	NonProducts       int64        `json:"non_products"`        // postage, fees, vouchers, adjustments, samples
	BlankDescriptions int64        `json:"blank_descriptions"`  //
	StockNotes        int64        `json:"stock_notes"`         // "damaged", "?", "thrown away": notes, not names
	PricesNotPositive int64        `json:"prices_not_positive"` // a price that rounds to less than a penny

	SpellingsMerged int64 `json:"spellings_merged"` // ids that differed from another only in case
	Renamed         int64 `json:"renamed"`          // products with several names, of which the most frequent won

	Products  int       `json:"products"`
	Invoices  int       `json:"invoices"`
	Customers int       `json:"customers"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
}

// BrokenLine says what is wrong with a line of the file.
type BrokenLine struct {
	Line   int64  `json:"line"` // counted from 1, the header included
	Reason string `json:"reason"`
}

// ReadFile reads the file at path, see Read.
func ReadFile(ctx context.Context, path string, opts Options) (*Data, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := Read(ctx, f, opts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// Read reads a whole file, plain or gzipped. A line that cannot be read is counted and skipped; a file that is not in the
// layout, holds no product, or ends in the middle of its compression is an error.
func Read(ctx context.Context, r io.Reader, opts Options) (*Data, error) {
	if opts.Stock < 0 || opts.Stock > maxQuantity {
		return nil, fmt.Errorf("stock: must be 0 to %d, got %d", maxQuantity, opts.Stock)
	}
	plain, err := uncompressed(&watched{Reader: r, ctx: ctx, progress: opts.Progress})
	if err != nil {
		return nil, err
	}
	lines := newLineReader(plain)
	columns, err := readHeader(lines)
	if err != nil {
		return nil, err
	}
	sales := newLedger()
	if err := sales.readAll(lines, columns); err != nil {
		return nil, err
	}
	return sales.close(opts.Stock)
}

func readHeader(lines *lineReader) (columns, error) {
	header, err := lines.next()
	switch {
	case errors.Is(err, io.EOF):
		return columns{}, fmt.Errorf("the file is empty: %w", ErrLayout)
	case errors.Is(err, errLineTooLong):
		return columns{}, fmt.Errorf("header: %w: %w", err, ErrLayout)
	case err != nil:
		return columns{}, fmt.Errorf("header: %w", err)
	}
	return parseHeader(header)
}

// readAll takes in every line below the header. Only a reader that fails ends it early.
func (l *ledger) readAll(lines *lineReader, columns columns) error {
	fields := make([]field, columns.count)
	for {
		line, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, errLineTooLong):
			return fmt.Errorf("after line %d: %w", lines.number, err)
		case err == nil && isBlank(line):
			continue
		case err == nil:
			err = split(line, fields)
		}
		l.report.Lines++
		if err == nil {
			err = l.add(columns.record(fields))
		}
		if err != nil {
			l.broken(lines.number, err)
		}
	}
}

// uncompressed looks at the content, not at a name: a file keeps its kind however it is called.
func uncompressed(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(r, maxLine)
	magic, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(magic) != "\x1f\x8b" {
		return buffered, nil
	}
	unzipped, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	return unzipped, nil
}

// watched reports progress and ends when its context does.
type watched struct {
	io.Reader
	ctx      context.Context //nolint:containedctx // a Reader has no other way to be told
	progress func(int64)
	bytes    int64
}

func (w *watched) Read(p []byte) (int, error) {
	if err := context.Cause(w.ctx); err != nil {
		return 0, err
	}
	n, err := w.Reader.Read(p)
	w.bytes += int64(n)
	if w.progress != nil {
		w.progress(w.bytes)
	}
	return n, err
}
