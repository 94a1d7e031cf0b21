package retail

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A line of the layout is about a hundred bytes; one that is longer than this is damage.
const maxLine = 64 << 10

var (
	errLineTooLong = fmt.Errorf("longer than %d bytes", maxLine)
	errOpenQuote   = errors.New("a quoted field does not end on its line")
	errAfterQuote  = errors.New("text after a closing quote")
)

type column int

const (
	invoiceColumn column = iota
	codeColumn
	descriptionColumn
	quantityColumn
	dateColumn
	priceColumn
	customerColumn // the only optional one: some copies of the data leave it out
	knownColumns
)

// requiredColumns is how many a file must have: those before customerColumn.
const requiredColumns = customerColumn

func (c column) String() string {
	return [...]string{"InvoiceNo", "StockCode", "Description", "Quantity", "InvoiceDate", "UnitPrice", "CustomerID"}[c]
}

// lineReader yields physical lines. A record is one line: in this layout no field holds a line break, and taking a stray
// quote for the start of one (as encoding/csv must) would let a single broken line swallow all that follow.
type lineReader struct {
	r      *bufio.Reader
	number int64
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, maxLine)}
}

// next returns the next line without its end; the bytes are good until the call after. The error is io.EOF after the last
// line, errLineTooLong for a line that was skipped, or the reader's.
func (l *lineReader) next() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	if len(line) == 0 && err != nil {
		return nil, err
	}
	l.number++
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.r.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return nil, errLineTooLong
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
}

func isBlank(line []byte) bool {
	return len(bytes.TrimSpace(line)) == 0
}

// A field is the text of one column, without the spaces around it.
type field []byte

// split cuts a line into exactly len(fields) fields. Quotes may wrap a field, with doubled quotes inside (RFC 4180); a
// quote inside an unquoted field is text, as in 15" TRAY. The fields share the line's memory.
func split(line []byte, fields []field) error {
	for i := range fields {
		if i > 0 {
			if len(line) == 0 || line[0] != ',' {
				return fmt.Errorf("fields: %d instead of %d", i, len(fields))
			}
			line = line[1:]
		}
		var err error
		fields[i], line, err = cut(line)
		if err != nil {
			return err
		}
	}
	if len(line) > 0 {
		return fmt.Errorf("fields: more than %d", len(fields))
	}
	return nil
}

// cut takes the first field off a line; what is left begins with the comma, or is empty.
func cut(line []byte) (field, []byte, error) {
	quoted := bytes.TrimLeft(line, " \t")
	if len(quoted) == 0 || quoted[0] != '"' {
		end := bytes.IndexByte(line, ',')
		if end < 0 {
			end = len(line)
		}
		return trim(line[:end]), line[end:], nil
	}
	text := quoted[1:]
	// Doubled quotes are undone in place: the text only ever gets shorter, so writing never overtakes reading.
	value := text[:0]
	for {
		end := bytes.IndexByte(text, '"')
		if end < 0 {
			return nil, nil, errOpenQuote
		}
		value = append(value, text[:end]...)
		text = text[end+1:]
		if len(text) == 0 || text[0] != '"' {
			break
		}
		value = append(value, '"')
		text = text[1:]
	}
	text = bytes.TrimLeft(text, " \t")
	if len(text) > 0 && text[0] != ',' {
		return nil, nil, errAfterQuote
	}
	return trim(value), text, nil
}

// trim takes off ASCII blanks; a loop, since it runs eight times a line.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\r') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return b
}

// columns says where the known columns are.
type columns struct {
	count    int
	position [knownColumns]int // -1 when absent
}

// parseHeader finds the columns by name, in any order, whatever their case, spaces or underscores. Columns it does not
// know (Country) are passed over.
func parseHeader(line []byte) (columns, error) {
	if bytes.HasPrefix(line, []byte("\xff\xfe")) || bytes.HasPrefix(line, []byte("\xfe\xff")) {
		return columns{}, fmt.Errorf("the file is UTF-16, save it as UTF-8: %w", ErrLayout)
	}
	line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	fields, err := splitAll(line)
	if err != nil {
		return columns{}, fmt.Errorf("header: %w: %w", err, ErrLayout)
	}
	c := columns{count: len(fields)}
	for i := range c.position {
		c.position[i] = -1
	}
	for i, f := range fields {
		at, known := columnNamed(f)
		if !known {
			continue
		}
		if c.position[at] >= 0 {
			return columns{}, fmt.Errorf("header: column %s appears twice: %w", at, ErrLayout)
		}
		c.position[at] = i
	}
	var missing []string
	for at := range requiredColumns {
		if c.position[at] < 0 {
			missing = append(missing, at.String())
		}
	}
	if len(missing) > 0 {
		return columns{}, fmt.Errorf("header: no column %s: %w", strings.Join(missing, ", "), ErrLayout)
	}
	return c, nil
}

func splitAll(line []byte) ([]field, error) {
	var fields []field
	for {
		f, rest, err := cut(line)
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
		if len(rest) == 0 {
			return fields, nil
		}
		line = rest[1:]
	}
}

// columnNamed takes "Customer ID", "customer_id" and "CustomerID" for one name. The second edition of the data set says
// Invoice and Price.
func columnNamed(f field) (column, bool) {
	switch strings.NewReplacer(" ", "", "_", "").Replace(strings.ToLower(string(f))) {
	case "invoiceno", "invoice":
		return invoiceColumn, true
	case "stockcode":
		return codeColumn, true
	case "description":
		return descriptionColumn, true
	case "quantity":
		return quantityColumn, true
	case "invoicedate":
		return dateColumn, true
	case "unitprice", "price":
		return priceColumn, true
	case "customerid":
		return customerColumn, true
	}
	return 0, false
}

// A record is one line by the meaning of its fields.
type record struct {
	invoice, code, description, quantity, date, price, customer field
}

func (c columns) record(fields []field) record {
	r := record{
		invoice:     fields[c.position[invoiceColumn]],
		code:        fields[c.position[codeColumn]],
		description: fields[c.position[descriptionColumn]],
		quantity:    fields[c.position[quantityColumn]],
		date:        fields[c.position[dateColumn]],
		price:       fields[c.position[priceColumn]],
	}
	if at := c.position[customerColumn]; at >= 0 {
		r.customer = fields[at]
	}
	return r
}

// text makes a string of a field: UTF-8 as it is, anything else read as Latin-1, the other encoding these files come in.
func text(f field) string {
	if utf8.Valid(f) {
		return string(f)
	}
	runes := make([]rune, len(f))
	for i, b := range f {
		runes[i] = rune(b)
	}
	return string(runes)
}
