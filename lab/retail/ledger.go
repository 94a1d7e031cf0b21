package retail

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"example.com/watertight/lab/catalog"
)

// How many broken lines the report shows.
const shownBroken = 10

// ledger takes in records and keeps only sums: nothing in it depends on the order of the lines, so that a shuffled file
// makes the same shop. Texts that repeat from line to line are parsed and stored once.
type ledger struct {
	report  Report
	layouts []string

	// The texts seen, as they stand in the file, and what became of each.
	codes        map[string]int32 // index into spellings
	descriptions map[string]int32 // index into texts
	dates        map[string]int64 // seconds since 1970
	invoiceNos   map[string]int32 // index into invoices
	customerIDs  map[string]string

	spellings []spelling
	texts     []description
	textAt    map[description]int32
	products  []soldProduct
	productAt map[string]int32
	invoices  []openInvoice
	invoiceAt map[string]int32
	lines     []soldLine
	votes     map[vote]int32
}

// A spelling is one way a product id was written.
type spelling struct {
	product int32 // index into products, or notAProduct
	sold    bool
}

const notAProduct = -1

type soldProduct struct {
	id    string
	sold  int64
	price int64 // the latest, minor units
	// Of two prices at one time that of the higher invoice number is the later; within one invoice the lower one counts.
	pricedAt int64
	pricedOn int32 // index into invoices
}

type openInvoice struct {
	number   string
	at       int64 // of the earliest line
	customer string
	lines    int32
}

type soldLine struct{ invoice, product, quantity int32 }

// A vote is cast by each line of a product for the name it carries.
type vote struct{ product, text int32 }

func newLedger() *ledger {
	return &ledger{
		layouts:      dateLayouts(),
		codes:        make(map[string]int32),
		descriptions: make(map[string]int32),
		dates:        make(map[string]int64),
		invoiceNos:   make(map[string]int32),
		customerIDs:  make(map[string]string),
		textAt:       make(map[description]int32),
		productAt:    make(map[string]int32),
		invoiceAt:    make(map[string]int32),
		votes:        make(map[vote]int32),
	}
}

// broken counts a line that could not be read.
func (l *ledger) broken(line int64, reason error) {
	l.report.BrokenLines++
	if len(l.report.FirstBroken) < shownBroken {
		l.report.FirstBroken = append(l.report.FirstBroken, BrokenLine{Line: line, Reason: reason.Error()})
	}
}

// add puts a record where it belongs. The error says what makes the line unreadable.
func (l *ledger) add(r record) error {
	invoice, err := l.invoice(r.invoice)
	if err != nil {
		return err
	}
	code, err := l.code(r.code)
	if err != nil {
		return err
	}
	quantity, err := parseQuantity(r.quantity)
	if err != nil {
		return err
	}
	at, err := l.date(r.date)
	if err != nil {
		return err
	}
	price, err := parsePrice(r.price)
	if err != nil {
		return err
	}
	customer, err := l.customer(r.customer)
	if err != nil {
		return err
	}
	text := l.description(r.description)
	product := l.spellings[code].product
	kind := l.texts[text].kind
	switch {
	case l.invoices[invoice].number[0] == 'C':
		l.report.Cancellations++
	case quantity < 1:
		l.report.Returns++
	case product == notAProduct || kind == nonProduct:
		l.report.NonProducts++
	case kind == blankDescription:
		l.report.BlankDescriptions++
	case kind == stockNote:
		l.report.StockNotes++
	case price < 1:
		l.report.PricesNotPositive++
	default:
		l.report.SaleLines++
		l.spellings[code].sold = true
		l.votes[vote{product, text}]++
		l.lines = append(l.lines, soldLine{invoice, product, int32(quantity)})
		l.bill(invoice, at, customer)
		l.sell(product, quantity, price, at, invoice)
	}
	return nil
}

// sell counts pieces and keeps the latest price.
func (l *ledger) sell(product int32, quantity, price, at int64, invoice int32) {
	p := &l.products[product]
	later := at > p.pricedAt
	if at == p.pricedAt {
		order := compareNumbers(l.invoices[invoice].number, l.invoices[p.pricedOn].number)
		later = order > 0 || order == 0 && price < p.price
	}
	if p.sold == 0 || later {
		p.price, p.pricedAt, p.pricedOn = price, at, invoice
	}
	p.sold += quantity
}

// bill notes a line on its invoice. The minutes of a long invoice may differ, the first counts; should its customers
// differ, the first by name.
func (l *ledger) bill(invoice int32, at int64, customer string) {
	i := &l.invoices[invoice]
	if i.lines == 0 || at < i.at {
		i.at = at
	}
	if i.customer == "" || customer != "" && customer < i.customer {
		i.customer = customer
	}
	i.lines++
}

func (l *ledger) invoice(f field) (int32, error) {
	if at, known := l.invoiceNos[string(f)]; known {
		return at, nil
	}
	number, err := parseID("InvoiceNo", f)
	if err != nil {
		return 0, err
	}
	at, known := l.invoiceAt[number]
	if !known {
		at = int32(len(l.invoices))
		l.invoices = append(l.invoices, openInvoice{number: number})
		l.invoiceAt[number] = at
	}
	l.invoiceNos[string(f)] = at
	return at, nil
}

func (l *ledger) code(f field) (int32, error) {
	if at, known := l.codes[string(f)]; known {
		return at, nil
	}
	id, err := parseID("StockCode", f)
	if err != nil {
		return 0, err
	}
	product := int32(notAProduct)
	if !isNonProductCode(id) {
		var known bool
		if product, known = l.productAt[id]; !known {
			product = int32(len(l.products))
			l.products = append(l.products, soldProduct{id: id, pricedAt: math.MinInt64})
			l.productAt[id] = product
		}
	}
	at := int32(len(l.spellings))
	l.spellings = append(l.spellings, spelling{product: product})
	l.codes[string(f)] = at
	return at, nil
}

func (l *ledger) description(f field) int32 {
	if at, known := l.descriptions[string(f)]; known {
		return at
	}
	d := describe(f)
	at, known := l.textAt[d]
	if !known {
		at = int32(len(l.texts))
		l.texts = append(l.texts, d)
		l.textAt[d] = at
	}
	l.descriptions[string(f)] = at
	return at
}

func (l *ledger) date(f field) (int64, error) {
	if at, known := l.dates[string(f)]; known {
		return at, nil
	}
	at, err := parseDate(f, l.layouts)
	if err != nil {
		return 0, err
	}
	l.dates[string(f)] = at.Unix()
	return at.Unix(), nil
}

func (l *ledger) customer(f field) (string, error) {
	if id, known := l.customerIDs[string(f)]; known {
		return id, nil
	}
	id, err := parseCustomer(f)
	if err != nil {
		return "", err
	}
	l.customerIDs[string(f)] = id
	return id, nil
}

// compareNumbers orders invoice numbers: 99 comes before 100.
func compareNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// close ends the reading: products by id, invoices by time, a basket for each.
func (l *ledger) close(stock int64) (*Data, error) {
	if l.report.SaleLines == 0 {
		if l.report.BrokenLines > 0 {
			first := l.report.FirstBroken[0]
			return nil, fmt.Errorf("%w: %d of %d lines are broken, the first is line %d: %s",
				ErrNoProducts, l.report.BrokenLines, l.report.Lines, first.Line, first.Reason)
		}
		return nil, ErrNoProducts
	}
	data := &Data{Report: l.report}
	data.Catalog = catalog.Catalog{Currency: Currency}
	place := l.shelve(data, stock)
	l.file(data, place)
	l.summarise(data)
	return data, nil
}

// shelve fills the catalog's products and says where each of the ledger's products went.
func (l *ledger) shelve(data *Data, stock int64) []int32 {
	order := make([]int32, 0, len(l.products))
	for i, p := range l.products {
		if p.sold > 0 {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(l.products[a].id, l.products[b].id) })
	names := l.count()
	categories := newSorter()
	place := make([]int32, len(l.products))
	data.Catalog.Products = make([]catalog.Product, len(order))
	for at, i := range order {
		p := l.products[i]
		place[i] = int32(at)
		onHand := stock
		if onHand == 0 {
			onHand = min(max(p.sold, MinStock), maxQuantity)
		}
		if len(names[i]) > 1 {
			data.Report.Renamed++
		}
		category := categories.category(names[i][0])
		data.Catalog.Products[at] = catalog.Product{
			ID: p.id, Name: names[i][0], Description: describeProduct(category, names[i][1:]), Category: category,
			PriceMinor: p.price, Stock: onHand, Sold: p.sold,
		}
	}
	return place
}

// count returns each product's names, the winner first: proper names before poor ones, then the most frequent, then by
// alphabet.
func (l *ledger) count() [][]string {
	type candidate struct {
		description
		lines int32
	}
	candidates := make([][]candidate, len(l.products))
	for v, lines := range l.votes {
		candidates[v.product] = append(candidates[v.product], candidate{l.texts[v.text], lines})
	}
	names := make([][]string, len(l.products))
	for i, all := range candidates {
		slices.SortFunc(all, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(b.lines, a.lines), cmp.Compare(a.name, b.name))
		})
		for _, c := range all {
			names[i] = append(names[i], c.name)
		}
	}
	return names
}

// describeProduct says what the file knows: where the product belongs and what else it has been called, so that a search
// for an old name still finds it.
func describeProduct(category string, others []string) string {
	const named = 3
	text := "From our " + category + " range."
	if len(others) > 0 {
		text += " Also sold as " + strings.Join(others[:min(len(others), named)], "; ") + "."
	}
	return text
}

// file fills the invoices and the baskets, with products at their place in the catalog.
func (l *ledger) file(data *Data, place []int32) {
	order := make([]int32, 0, len(l.invoices))
	for i, invoice := range l.invoices {
		if invoice.lines > 0 {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(l.invoices[a].at, l.invoices[b].at), compareNumbers(l.invoices[a].number, l.invoices[b].number))
	})
	rank := make([]int32, len(l.invoices))
	for at, i := range order {
		rank[i] = int32(at)
	}
	for i := range l.lines {
		l.lines[i].invoice, l.lines[i].product = rank[l.lines[i].invoice], place[l.lines[i].product]
	}
	slices.SortFunc(l.lines, func(a, b soldLine) int {
		return cmp.Or(cmp.Compare(a.invoice, b.invoice), cmp.Compare(a.product, b.product))
	})
	data.Invoices = make([]Invoice, len(order))
	data.Catalog.Baskets = make([]catalog.Basket, len(order))
	rest := l.lines
	for at, i := range order {
		open := l.invoices[i]
		lines, products := merge(rest[:open.lines])
		rest = rest[open.lines:]
		data.Invoices[at] = Invoice{Number: open.number, At: time.Unix(open.at, 0).UTC(), Customer: open.customer, Lines: lines}
		data.Catalog.Baskets[at] = catalog.Basket{ID: open.number, Products: products}
	}
}

// merge adds up the lines of one product.
func merge(sold []soldLine) ([]Line, []int32) {
	lines := make([]Line, 0, len(sold))
	products := make([]int32, 0, len(sold))
	for _, s := range sold {
		if last := len(lines) - 1; last >= 0 && lines[last].Product == s.product {
			lines[last].Quantity += int64(s.quantity)
			continue
		}
		lines = append(lines, Line{Product: s.product, Quantity: int64(s.quantity)})
		products = append(products, s.product)
	}
	return lines, products
}

func (l *ledger) summarise(data *Data) {
	r := &data.Report
	r.Products, r.Invoices = len(data.Catalog.Products), len(data.Invoices)
	for _, s := range l.spellings {
		if s.sold {
			r.SpellingsMerged++
		}
	}
	r.SpellingsMerged -= int64(r.Products)
	customers := make(map[string]struct{})
	for _, invoice := range data.Invoices {
		if invoice.Customer != "" {
			customers[invoice.Customer] = struct{}{}
		}
	}
	r.Customers = len(customers)
	r.From, r.To = data.Invoices[0].At, data.Invoices[len(data.Invoices)-1].At
}
