package retail_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"example.com/watertight/lab/catalog"
	"example.com/watertight/lab/retail"
)

const header = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n"

// A sale that every table below adds, so that the file is never without a product.
const mug = "536365,21733,RED MUG,6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom\n"

func read(t *testing.T, file string) *retail.Data {
	t.Helper()
	data, err := retail.Read(t.Context(), strings.NewReader(file), retail.Options{})
	if err != nil {
		t.Fatalf("reading %q: %v", file, err)
	}
	return data
}

func TestRead_LeavesOutAndCountsEachKindOfLine(t *testing.T) {
	for _, test := range []struct {
		name string
		line string
		want retail.Report
	}{
		{"cancellation", "C536379,22222,BLUE JUG,-1,2010-12-01 09:41:00,27.50,14527.0,UK", retail.Report{Cancellations: 1}},
		{"cancellation in lower case", "c536379,22222,BLUE JUG,1,2010-12-01 09:41:00,27.50,,UK", retail.Report{Cancellations: 1}},
		{"return", "536379,22222,BLUE JUG,-1,2010-12-01 09:41:00,27.50,14527.0,UK", retail.Report{Returns: 1}},
		{"nothing sold", "536379,22222,BLUE JUG,0,2010-12-01 09:41:00,27.50,14527.0,UK", retail.Report{Returns: 1}},
		{"postage", "536370,POST,POSTAGE,3,2010-12-01 08:45:00,18.00,12583.0,France", retail.Report{NonProducts: 1}},
		{"dotcom postage", "536544,DOT,DOTCOM POSTAGE,1,2010-12-01 14:32:00,569.77,,UK", retail.Report{NonProducts: 1}},
		{"manual entry in lower case", "536569,m,Manual,1,2010-12-01 15:35:00,1.25,16274.0,UK", retail.Report{NonProducts: 1}},
		{"fee", "537600,AMAZONFEE,AMAZON FEE,1,2010-12-07 12:41:00,1.00,,UK", retail.Report{NonProducts: 1}},
		{"bank charges", "536779,BANK CHARGES,Bank Charges,1,2010-12-02 15:08:00,15.00,15823.0,UK", retail.Report{NonProducts: 1}},
		{"carriage behind an ordinary code", "563020,23444,Next Day Carriage,1,2011-08-11 13:02:00,15.00,,UK", retail.Report{NonProducts: 1}},
		{"adjustment", "A563185,B,Adjust bad debt,1,2011-08-12 14:50:00,11062.06,,UK", retail.Report{NonProducts: 1}},
		{"gift voucher", "536862,gift_0001_40,Dotcomgiftshop Gift Voucher £40.00,1,2010-12-03 11:13:00,34.04,,UK", retail.Report{NonProducts: 1}},
		{"blank description", "536414,22139,,56,2010-12-01 11:52:00,1.00,,UK", retail.Report{BlankDescriptions: 1}},
		{"description of spaces", "536414,22139,  ,56,2010-12-01 11:52:00,1.00,,UK", retail.Report{BlankDescriptions: 1}},
		{"question mark", "537032,22222,?,30,2010-12-03 16:50:00,1.00,,UK", retail.Report{StockNotes: 1}},
		{"one-word note", "537032,22222,Damaged,30,2010-12-03 16:50:00,1.00,,UK", retail.Report{StockNotes: 1}},
		{"note", "537032,22222,thrown away-can't sell.,30,2010-12-03 16:50:00,1.00,,UK", retail.Report{StockNotes: 1}},
		{"free", "536414,22139,BLUE JUG,56,2010-12-01 11:52:00,0.0,,UK", retail.Report{PricesNotPositive: 1}},
		{"less than a penny", "550193,22139,BLUE JUG,1,2011-04-15 09:27:00,0.001,13952.0,UK", retail.Report{PricesNotPositive: 1}},
		{"negative price", "563186,22139,BLUE JUG,1,2011-08-12 14:51:00,-11062.06,,UK", retail.Report{PricesNotPositive: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := read(t, header+mug+test.line+"\n")
			want := test.want
			want.Lines, want.SaleLines, want.Products, want.Invoices, want.Customers = 2, 1, 1, 1, 1
			ignore := cmpopts.IgnoreFields(retail.Report{}, "From", "To")
			if diff := cmp.Diff(want, data.Report, ignore); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRead_KeepsNamesThatOnlyLookLikeNotes(t *testing.T) {
	for _, name := range []string{
		"LOST IN SPACE PUZZLE", "CRACKED GLAZE NECKLACE", "BLUE CHECK BAG", "Wet Weather Hat", "WORLD POSTAGE STAMP TIN",
		"BLACK BAROQUE CARRIAGE CLOCK", "Display Cabinet", "red mug",
	} {
		data := read(t, header+"1,22222,"+name+",1,2010-12-01 08:26:00,1.00,,UK\n")
		if got := data.Catalog.Products[0].Name; !strings.EqualFold(got, name) {
			t.Errorf("name: got %q, want %q", got, name)
		}
	}
}

func TestRead_MakesOneProductOfItsLines(t *testing.T) {
	for _, test := range []struct {
		name  string
		lines string
		want  catalog.Product
	}{
		{
			"ids that differ in case are one, in capitals",
			"1,85123a,WHITE T-LIGHT HOLDER,60,2010-12-01 08:26:00,2.55,,UK\n2,85123A,WHITE T-LIGHT HOLDER,70,2010-12-02 08:26:00,2.55,,UK\n",
			catalog.Product{ID: "85123A", Name: "White T-Light Holder", PriceMinor: 255, Stock: 130},
		},
		{
			"the most frequent name wins",
			"1,1,OLD NAME,9,2010-12-01 08:26:00,1.00,,UK\n2,1,NEW NAME,1,2010-12-02 08:26:00,1.00,,UK\n3,1,NEW NAME,1,2010-12-03 08:26:00,1.00,,UK\n",
			catalog.Product{ID: "1", Name: "New Name", PriceMinor: 100, Stock: 100},
		},
		{
			"names that tie go by the alphabet",
			"1,1,ZEBRA,1,2010-12-01 08:26:00,1.00,,UK\n2,1,APE,1,2010-12-02 08:26:00,1.00,,UK\n",
			catalog.Product{ID: "1", Name: "Ape", PriceMinor: 100, Stock: 100},
		},
		{
			"a name in lower case loses to one in capitals, however frequent",
			"1,1,blue jug,1,2010-12-01 08:26:00,1.00,,UK\n2,1,blue jug,1,2010-12-02 08:26:00,1.00,,UK\n3,1,BLUE WATER JUG,1,2010-12-03 08:26:00,1.00,,UK\n",
			catalog.Product{ID: "1", Name: "Blue Water Jug", PriceMinor: 100, Stock: 100},
		},
		{
			"the latest price wins, wherever its line stands",
			"1,1,JUG,1,2011-12-01 08:26:00,3.00,,UK\n2,1,JUG,1,2010-12-01 08:26:00,1.00,,UK\n3,1,JUG,1,2011-06-01 08:26:00,2.00,,UK\n",
			catalog.Product{ID: "1", Name: "Jug", PriceMinor: 300, Stock: 100},
		},
		{
			"at the same time the higher invoice number is the later",
			"100,1,JUG,1,2011-12-01 08:26:00,3.00,,UK\n99,1,JUG,1,2011-12-01 08:26:00,1.00,,UK\n",
			catalog.Product{ID: "1", Name: "Jug", PriceMinor: 300, Stock: 100},
		},
		{
			"returns and free pieces are not sold",
			"1,1,JUG,250,2011-12-01 08:26:00,3.00,,UK\nC2,1,JUG,-50,2011-12-02 08:26:00,3.00,,UK\n3,1,JUG,50,2011-12-02 08:26:00,0,,UK\n",
			catalog.Product{ID: "1", Name: "Jug", PriceMinor: 300, Stock: 250},
		},
		{
			"prices are read exactly and rounded at the third place",
			"1,1,JUG,1,2011-12-01 08:26:00,0.285,,UK\n",
			catalog.Product{ID: "1", Name: "Jug", PriceMinor: 29, Stock: 100},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := read(t, header+test.lines)
			ignore := cmpopts.IgnoreFields(catalog.Product{}, "Description", "Category", "Sold")
			if diff := cmp.Diff([]catalog.Product{test.want}, data.Catalog.Products, ignore); diff != "" {
				t.Errorf("products (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRead_StockCanBeSet(t *testing.T) {
	file := header + "1,1,JUG,250,2011-12-01 08:26:00,3.00,,UK\n"
	data, err := retail.Read(t.Context(), strings.NewReader(file), retail.Options{Stock: 7})
	if err != nil {
		t.Fatal(err)
	}
	if got := data.Catalog.Products[0]; got.Stock != 7 || got.Sold != 250 {
		t.Errorf("stock, sold: got %d, %d, want 7, 250", got.Stock, got.Sold)
	}
	if _, err := retail.Read(t.Context(), strings.NewReader(file), retail.Options{Stock: -1}); err == nil {
		t.Error("a negative stock was accepted")
	}
}

func TestRead_InvoicesAreInOrderAndBasketsAreSets(t *testing.T) {
	data := read(t, header+
		"100,B2,JUG,1,2010-12-02 09:00:00,1.00,17850.0,UK\n"+
		"99,A1,MUG,2,2010-12-02 09:00:00,1.00,,UK\n"+
		"100,A1,MUG,3,2010-12-02 09:01:00,1.00,17850.0,UK\n"+
		"100,a1,MUG,4,2010-12-02 09:01:00,1.00,17850.0,UK\n"+
		"5,B2,JUG,5,2010-12-01 09:00:00,1.00,12583,UK\n"+
		"C6,B2,JUG,-5,2010-12-01 09:00:00,1.00,12583,UK\n")
	at := time.Date(2010, 12, 2, 9, 0, 0, 0, time.UTC)
	wantInvoices := []retail.Invoice{
		{Number: "5", At: at.AddDate(0, 0, -1), Customer: "12583", Lines: []retail.Line{{Product: 1, Quantity: 5}}},
		{Number: "99", At: at, Lines: []retail.Line{{Product: 0, Quantity: 2}}},
		{Number: "100", At: at, Customer: "17850", Lines: []retail.Line{{Product: 0, Quantity: 7}, {Product: 1, Quantity: 1}}},
	}
	if diff := cmp.Diff(wantInvoices, data.Invoices); diff != "" {
		t.Errorf("invoices (-want +got):\n%s", diff)
	}
	wantBaskets := []catalog.Basket{
		{ID: "5", Products: []int32{1}}, {ID: "99", Products: []int32{0}}, {ID: "100", Products: []int32{0, 1}},
	}
	if diff := cmp.Diff(wantBaskets, data.Catalog.Baskets); diff != "" {
		t.Errorf("baskets (-want +got):\n%s", diff)
	}
}

func TestRead_BrokenLinesAreSkippedAndNamed(t *testing.T) {
	for _, test := range []struct{ name, line, reason string }{
		{"too few fields", "536365,21733,RED MUG", "fields: 3 instead of 8"},
		{"too many fields", strings.TrimSpace(mug) + ",extra", "fields: more than 8"},
		{"quantity in words", strings.Replace(mug, ",6,", ",six,", 1), `Quantity "six": not a number`},
		{"half a piece", strings.Replace(mug, ",6,", ",1.5,", 1), `Quantity "1.5": not a whole number`},
		{"no quantity", strings.Replace(mug, ",6,", ",,", 1), `Quantity "": not a number`},
		{"endless quantity", strings.Replace(mug, ",6,", ",99999999999999999999,", 1), `out of range`},
		{"price in words", strings.Replace(mug, "2.55", "cheap", 1), `UnitPrice "cheap": not a number`},
		{"price with two points", strings.Replace(mug, "2.55", "2.5.5", 1), `UnitPrice "2.5.5": not a number`},
		{"no date", strings.Replace(mug, "2010-12-01 08:26:00", "", 1), `InvoiceDate "": not a date`},
		{"day that does not exist", strings.Replace(mug, "2010-12-01", "2010-02-30", 1), "not a date"},
		{"no invoice", strings.Replace(mug, "536365", "", 1), "InvoiceNo is empty"},
		{"no code", strings.Replace(mug, "21733", " ", 1), "StockCode is empty"},
		{"code with a path in it", strings.Replace(mug, "21733", "../x", 1), `StockCode "../x"`},
		{"open quote", strings.Replace(mug, "RED MUG", `"RED MUG`, 1), "does not end on its line"},
		{"text after a quote", strings.Replace(mug, "RED MUG", `"RED" MUG`, 1), "text after a closing quote"},
		{"endless line", strings.Replace(mug, "RED MUG", strings.Repeat("X", 200_000), 1), "longer than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := read(t, header+mug+strings.TrimSpace(test.line)+"\n"+mug)
			r := data.Report
			if r.Lines != 3 || r.SaleLines != 2 || r.BrokenLines != 1 {
				t.Fatalf("lines, sales, broken: got %d, %d, %d, want 3, 2, 1", r.Lines, r.SaleLines, r.BrokenLines)
			}
			if got := r.FirstBroken[0]; got.Line != 3 || !strings.Contains(got.Reason, test.reason) {
				t.Errorf("broken line: got %+v, want line 3 with %q", got, test.reason)
			}
		})
	}
}

func TestRead_OnlyTheFirstBrokenLinesAreKept(t *testing.T) {
	data := read(t, header+mug+strings.Repeat("broken\n", 1000))
	if got := data.Report.BrokenLines; got != 1000 {
		t.Errorf("broken lines: got %d, want 1000", got)
	}
	if got := len(data.Report.FirstBroken); got != 10 {
		t.Errorf("broken lines shown: got %d, want 10", got)
	}
}

func TestRead_TakesTheDirtThatFilesComeWith(t *testing.T) {
	plain := header + mug
	for _, test := range []struct{ name, file string }{
		{"byte order mark", "\ufeff" + plain},
		{"Windows line ends", strings.ReplaceAll(plain, "\n", "\r\n")},
		{"no line end at the end", strings.TrimSuffix(plain, "\n")},
		{"blank lines", strings.ReplaceAll(plain, "\n", "\n  \n\n")},
		{"spaces around fields", strings.ReplaceAll(plain, ",", " ,\t ")},
		{"quoted fields", `"` + strings.NewReplacer(",", `","`, "\n", "\"\n\"").Replace(strings.TrimSpace(plain)) + `"`},
		{"header in another case", strings.ToLower(header) + mug},
		{"header of the second edition", "Invoice,StockCode,Description,Quantity,InvoiceDate,Price,Customer ID,Country\n" + mug},
		{"American date", strings.Replace(plain, "2010-12-01 08:26:00", "12/1/2010 8:26", 1)},
		{"European date", strings.Replace(plain, "2010-12-01 08:26:00", "01-12-2010 08:26", 1)},
		{"decimals from a spreadsheet", strings.Replace(plain, ",6,", ",6.0,", 1)},
		{"double blanks in the name", strings.Replace(plain, "RED MUG", "RED  MUG ", 1)},
		{"gzip", zipped(t, plain)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(read(t, plain), read(t, test.file)); diff != "" {
				t.Errorf("differs from the clean file (-clean +this):\n%s", diff)
			}
		})
	}
}

func TestRead_QuotesAndEncodings(t *testing.T) {
	for _, test := range []struct{ name, description, want string }{
		{"doubled quotes", `"SET ""SPICE"" TINS"`, `Set "Spice" Tins`},
		{"comma in quotes", `"METAL SIGN,CUPCAKE"`, "Metal Sign, Cupcake"},
		{"bare quote", `15" TRAY`, `15" Tray`},
		{"UTF-8", "CAFÉ CUP", "Café Cup"},
		{"Latin-1", "CAF\xc9 CUP", "Café Cup"},
		{"control characters", "RED\x00\x07MUG", "Red Mug"},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := read(t, header+strings.Replace(mug, "RED MUG", test.description, 1))
			if got := data.Catalog.Products[0].Name; got != test.want {
				t.Errorf("name: got %q, want %q", got, test.want)
			}
		})
	}
}

func TestRead_RefusesWhatIsNotTheLayout(t *testing.T) {
	for _, test := range []struct {
		name, file string
		want       error
		says       string
	}{
		{"empty file", "", retail.ErrLayout, "empty"},
		{"empty gzip", zipped(t, ""), retail.ErrLayout, "empty"},
		{"another table", "id,name,cost\n1,mug,2\n", retail.ErrLayout, "InvoiceNo, StockCode, Description, Quantity, InvoiceDate, UnitPrice"},
		{"one column missing", strings.Replace(header, "UnitPrice,", "", 1) + mug, retail.ErrLayout, "no column UnitPrice"},
		{"one column twice", strings.Replace(header, "Country", "Quantity", 1) + mug, retail.ErrLayout, "Quantity appears twice"},
		{"no header", mug, retail.ErrLayout, "no column"},
		{"not text", "\x00\x01\x02\x03" + strings.Repeat("\xfa", 100_000), retail.ErrLayout, "header"},
		{"UTF-16", "\xff\xfeI\x00n\x00", retail.ErrLayout, "UTF-16"},
		{"header and nothing else", header, retail.ErrNoProducts, "no product"},
		{"nothing but returns", header + "C1,1,JUG,-1,2010-12-01 08:26:00,1.00,,UK\n", retail.ErrNoProducts, "no product"},
		{"nothing but broken lines", header + "x\ny\n", retail.ErrNoProducts, "line 2: fields: 1 instead of 8"},
		{"half a gzip", zipped(t, header+mug)[:60], io.ErrUnexpectedEOF, "unexpected EOF"},
		{"gzip in name only", "\x1f\x8bnonsense-nonsense", gzip.ErrHeader, "gzip"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := retail.Read(t.Context(), strings.NewReader(test.file), retail.Options{})
			if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.says) {
				t.Errorf("error: got %v, want one that is %q and says %q", err, test.want, test.says)
			}
		})
	}
}

func TestRead_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := retail.Read(ctx, strings.NewReader(header+mug), retail.Options{}); !errors.Is(err, gone) {
		t.Errorf("error: got %v, want %v", err, gone)
	}
}

func TestReadFile_NamesTheFileInItsError(t *testing.T) {
	if _, err := retail.ReadFile(t.Context(), "no-such.csv", retail.Options{}); err == nil || !strings.Contains(err.Error(), "no-such.csv") {
		t.Errorf("error: got %v, want one that names no-such.csv", err)
	}
}

// However the columns and lines are shuffled, the shop is the same.
func TestRead_OrderOfColumnsAndLinesDoesNotMatter(t *testing.T) {
	columns := strings.Split(strings.TrimSpace(header), ",")
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.SliceOfN(row(), 1, 40).Draw(t, "rows")
		first, errFirst := retail.Read(t.Context(), strings.NewReader(table(columns, rows)), retail.Options{})
		order := rapid.Permutation(columns).Draw(t, "columns")
		shuffled := rapid.Permutation(rows).Draw(t, "lines")
		second, errSecond := retail.Read(t.Context(), strings.NewReader(table(order, shuffled)), retail.Options{})
		if (errFirst == nil) != (errSecond == nil) {
			t.Fatalf("errors: got %v and %v", errFirst, errSecond)
		}
		// Which broken lines come first does depend on the order.
		ignore := cmpopts.IgnoreFields(retail.Report{}, "FirstBroken")
		if diff := cmp.Diff(first, second, ignore); diff != "" {
			t.Fatalf("shuffling changed the shop (-before +after):\n%s", diff)
		}
		if errFirst == nil {
			checkSums(t, first)
		}
	})
}

// checkSums holds a result against what its documentation promises.
func checkSums(t interface {
	Fatalf(format string, args ...any)
}, data *retail.Data) {
	r := data.Report
	if sum := r.SaleLines + r.BrokenLines + r.Cancellations + r.Returns + r.NonProducts + r.BlankDescriptions + r.StockNotes + r.PricesNotPositive; sum != r.Lines {
		t.Fatalf("lines: got %d, the counts add up to %d: %+v", r.Lines, sum, r)
	}
	for i, p := range data.Catalog.Products {
		if p.PriceMinor < 1 || p.Name == "" || p.Category == "" || p.ID != strings.ToUpper(p.ID) || p.Stock < retail.MinStock {
			t.Fatalf("product %+v is not fit to sell", p)
		}
		if i > 0 && data.Catalog.Products[i-1].ID >= p.ID {
			t.Fatalf("products %s and %s are out of order", data.Catalog.Products[i-1].ID, p.ID)
		}
	}
	for i, invoice := range data.Invoices {
		if len(invoice.Lines) == 0 || len(invoice.Lines) != len(data.Catalog.Baskets[i].Products) {
			t.Fatalf("invoice %+v and basket %+v do not match", invoice, data.Catalog.Baskets[i])
		}
		if i > 0 && invoice.At.Before(data.Invoices[i-1].At) {
			t.Fatalf("invoice %s comes before its time", invoice.Number)
		}
	}
}

// row draws one line, by column name, out of few values so that they meet.
func row() *rapid.Generator[map[string]string] {
	return rapid.Custom(func(t *rapid.T) map[string]string {
		pick := func(column string, values ...string) string { return rapid.SampledFrom(values).Draw(t, column) }
		return map[string]string{
			"InvoiceNo":   pick("InvoiceNo", "1", "2", "10", "C3", "x7"),
			"StockCode":   pick("StockCode", "85123A", "85123a", "21733", "POST", "", "dcgs"),
			"Description": pick("Description", "RED MUG", "BLUE MUG", "red mug", "", "damaged", `"A ""B"", C"`, "Red Mug"),
			"Quantity":    pick("Quantity", "1", "6", "200", "-1", "x"),
			"InvoiceDate": pick("InvoiceDate", "2010-12-01 08:26:00", "2010-12-01 08:27:00", "2011-01-01 00:00:00"),
			"UnitPrice":   pick("UnitPrice", "1", "2.5", "0.004", "0", "-1"),
			"CustomerID":  pick("CustomerID", "", "17850.0", "12583"),
			"Country":     "France",
		}
	})
}

func table(columns []string, rows []map[string]string) string {
	var b strings.Builder
	b.WriteString(strings.Join(columns, ",") + "\n")
	for _, row := range rows {
		for i, column := range columns {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(row[column])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(header + mug))
	f.Add([]byte("\ufeff" + header + "1,\"A\"\"B\",\"x, y\",1,12/1/2010 8:26,0.5,,\r\n"))
	f.Add([]byte(header + mug + "C1,1,x,-1,2010-12-01,1,,\n\n536365,POST,POSTAGE,1,2010-12-01,1,,\n"))
	f.Add([]byte(header + "1,1,\"open,1,2010-12-01,1,,\n" + mug))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, file []byte) {
		data, err := retail.Read(t.Context(), bytes.NewReader(file), retail.Options{})
		if err == nil {
			checkSums(t, data)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	const lines = 200_000
	file := manyLines(lines)
	b.SetBytes(int64(len(file)))
	b.ReportAllocs()
	for b.Loop() {
		data, err := retail.Read(b.Context(), bytes.NewReader(file), retail.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if data.Report.SaleLines != lines {
			b.Fatalf("sale lines: got %d, want %d", data.Report.SaleLines, lines)
		}
	}
	b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

func manyLines(lines int) []byte {
	draw := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	b.WriteString(header)
	at := time.Date(2010, 12, 1, 8, 0, 0, 0, time.UTC)
	for i := range lines {
		code := draw.IntN(4000)
		fmt.Fprintf(&b, "%d,%d,PRODUCT NUMBER %d,%d,%s,%d.%02d,%d.0,United Kingdom\n", 536365+i/25, 20000+code, code, 1+draw.IntN(24),
			at.Add(time.Duration(i/25)*7*time.Minute).Format(time.DateTime), draw.IntN(20), 1+draw.IntN(99), 12000+draw.IntN(4000))
	}
	return b.Bytes()
}

func zipped(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
