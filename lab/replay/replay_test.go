package replay

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/retail"
)

func at(text string) time.Time {
	t, err := time.Parse(time.DateTime, text)
	if err != nil {
		panic(err)
	}
	return t
}

func invoice(number, when string, products ...int32) retail.Invoice {
	i := retail.Invoice{Number: number, At: at(when), Customer: "17850"}
	for _, p := range products {
		i.Lines = append(i.Lines, retail.Line{Product: p, Quantity: int64(p) + 1})
	}
	return i
}

func twoDays() []retail.Invoice {
	return []retail.Invoice{
		invoice("1", "2010-12-01 08:00:00", 0),
		invoice("2", "2010-12-02 08:00:00", 0, 1),
		invoice("3", "2010-12-02 08:00:00", 1),
		invoice("4", "2010-12-02 08:10:00", 2),
		invoice("5", "2010-12-03 23:59:00", 0),
		invoice("6", "2010-12-03 23:59:00", 0),
		invoice("7", "2010-12-03 23:59:00", 0),
	}
}

func TestPick_FindsTheBusiestDayOrTheOneThatIsNamed(t *testing.T) {
	for date, want := range map[string]string{"": "2", "2010-12-01": "1", "2010-12-03": "5"} {
		var day time.Time
		if date != "" {
			day = at(date + " 00:00:00")
		}
		got, err := Pick(twoDays(), day)
		if err != nil || got.Invoices[0].Number != want {
			t.Errorf("%q: got %+v, %v, want to begin with invoice %s", date, got, err, want)
		}
	}
	_, err := Pick(twoDays(), at("2010-12-04 00:00:00"))
	if err == nil || !strings.Contains(err.Error(), "2010-12-04: no invoices; the file has 2010-12-01 to 2010-12-03") {
		t.Errorf("a day without sales: got %v", err)
	}
}

func id(p int32) string { return fmt.Sprintf("P%d", p) }

func TestPlan_KeepsOrderBasketsAndGaps(t *testing.T) {
	day, err := Pick(twoDays(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	day.Invoices[1].Customer = ""
	got := Replay{Speed: 60, RunID: "r"}.Plan(day, id, map[string]bool{"P0": true, "P1": true, "P2": true})
	order := func(customer string, lines ...load.OrderLine) load.Order {
		return load.Order{CustomerID: customer, Currency: "GBP", Lines: lines, PaymentToken: "tok_ok"}
	}
	want := Plan{
		Orders: []Order{
			{0, "2-r", order("17850", load.OrderLine{ProductID: "P0", Quantity: 1}, load.OrderLine{ProductID: "P1", Quantity: 2})},
			{500 * time.Millisecond, "3-r", order("guest-3", load.OrderLine{ProductID: "P1", Quantity: 2})}, // half of the same minute later
			{10 * time.Second, "4-r", order("17850", load.OrderLine{ProductID: "P2", Quantity: 3})},
		},
		Summary: Summary{Day: "2010-12-02", Speed: 60, RunID: "r", Invoices: 3, Orders: 3, Lines: 4},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestPlan_LeavesOutAndCountsWhatTheShopCannotTake(t *testing.T) {
	huge := invoice("9", "2010-12-02 09:00:00")
	huge.Lines = make([]retail.Line, maxLines+1)
	heavy := invoice("10", "2010-12-02 09:00:00", 0, 1)
	heavy.Lines[0].Quantity = maxQuantity + 1
	day := Day{at("2010-12-02 00:00:00"), []retail.Invoice{
		invoice("7", "2010-12-02 08:00:00", 2), invoice("8", "2010-12-02 08:30:00", 1, 2), huge, heavy,
	}}
	got := Replay{Speed: 1, RunID: "r"}.Plan(day, id, map[string]bool{"P0": true, "P1": true})
	want := Summary{
		Day: "2010-12-02", Speed: 1, RunID: "r", Invoices: 4, Orders: 2, Lines: 2,
		UnknownLines: 2, UnknownProducts: 1, UnknownInvoices: 1, OversizeInvoices: 1, OversizeLines: 1,
	}
	if diff := cmp.Diff(want, got.Summary); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	if got.Orders[0].At != 30*time.Minute {
		t.Errorf("the first order that is sent: got %v, want 30m after the first invoice", got.Orders[0].At)
	}
	if hints := want.hints("sales.csv"); len(hints) != 2 || !strings.Contains(hints[0], "run `lab import sales.csv` first") {
		t.Errorf("hints: got %q", hints)
	}
}

// gateway sells the products it is given and keeps the orders it gets.
type gateway struct {
	products []string

	mu     sync.Mutex
	keys   []string
	orders map[string]load.Order
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		var page []string
		for _, p := range g.products {
			page = append(page, fmt.Sprintf(`{"id":%q,"name":"x","price":{"currency":"GBP","minor":1}}`, p))
		}
		fmt.Fprintf(w, `{"products":[%s],"next_page_token":""}`, strings.Join(page, ","))
		return
	}
	var order load.Order
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if _, known := g.orders[key]; known {
		w.Header().Set("Idempotency-Replayed", "true")
	} else {
		g.keys = append(g.keys, key)
		g.orders[key] = order
	}
	w.Header().Set("Location", "/api/v1/orders/o-"+key)
	w.WriteHeader(http.StatusCreated)
}

func startGateway(t *testing.T, products ...string) (*gateway, string) {
	t.Helper()
	g := &gateway{products: products, orders: map[string]load.Order{}}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	return g, server.URL
}

const sales = `InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country
536365,85123A,WHITE HANGING HEART T-LIGHT HOLDER,6,12/1/2010 8:26,2.55,17850,United Kingdom
536366,22633,HAND WARMER UNION JACK,6,12/2/2010 8:28,1.85,17850,United Kingdom
536366,85123A,WHITE HANGING HEART T-LIGHT HOLDER,2,12/2/2010 8:28,2.55,17850,United Kingdom
536367,85123A,WHITE HANGING HEART T-LIGHT HOLDER,32,12/2/2010 8:34,2.55,,United Kingdom
C536379,85123A,WHITE HANGING HEART T-LIGHT HOLDER,-1,12/2/2010 9:41,2.55,14527,United Kingdom
536368,22633,HAND WARMER UNION JACK,3,12/2/2010 8:34,1.85,13047,United Kingdom
`

func salesFile(t *testing.T) string {
	t.Helper()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := w.Write([]byte(sales))
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sales.csv.gz")
	if err := os.WriteFile(path, zipped.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func execute(t *testing.T, url string, args ...string) (string, error) {
	t.Helper()
	var f Flags
	parser, err := kong.New(&f, kong.Exit(func(int) { t.Errorf("%v: wants to exit", args) }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		return "", err
	}
	var out, errOut bytes.Buffer
	err = f.Execute(t.Context(), &out, &errOut, url)
	if errOut.Len() > 0 {
		t.Errorf("on what is no terminal: %q", errOut.String())
	}
	return out.String(), err
}

func TestReplay_PlaysTheBusiestDayAndAgainAsTheSameOrders(t *testing.T) {
	g, url := startGateway(t, "85123A", "22633")
	acked := filepath.Join(t.TempDir(), "acked.txt")
	args := []string{salesFile(t), "--speed=3600", "--run-id=lesson", "--acked", acked, "--output=json"}
	out, err := execute(t, url, args...)
	var outcome Outcome
	if jsonErr := json.Unmarshal([]byte(out), &outcome); err != nil || jsonErr != nil {
		t.Fatalf("got %s, %v, %v", out, err, jsonErr)
	}
	if outcome.Replay.Day != "2010-12-02" || outcome.Replay.Orders != 3 || outcome.Operation(load.Checkout).Outcomes.OK != 3 {
		t.Errorf("got %+v, %+v, want 3 orders of 2010-12-02", outcome.Replay, outcome.Total)
	}
	if want := []string{"536366-lesson", "536367-lesson", "536368-lesson"}; !slices.Equal(g.keys, want) {
		t.Errorf("keys: got %v, want %v, in this order", g.keys, want)
	}
	want := load.Order{CustomerID: "17850", Currency: "GBP", PaymentToken: "tok_ok",
		Lines: []load.OrderLine{{ProductID: "22633", Quantity: 6}, {ProductID: "85123A", Quantity: 2}}}
	if diff := cmp.Diff(want, g.orders["536366-lesson"]); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	content, err := os.ReadFile(acked)
	if got := strings.Fields(string(content)); err != nil || len(got) != 3 || !slices.Contains(got, "o-536367-lesson") {
		t.Errorf("acked: got %q, %v, want three ids", content, err)
	}

	out, err = execute(t, url, args...)
	if jsonErr := json.Unmarshal([]byte(out), &outcome); err != nil || jsonErr != nil || outcome.Total.Replayed != 3 || len(g.keys) != 3 {
		t.Errorf("again: got %+v, %v, %v, want the same three orders", outcome.Total, err, jsonErr)
	}
	if _, err = execute(t, url, args[0], "--speed=3600"); err != nil || len(g.keys) != 6 {
		t.Errorf("as a new run: got %d orders, %v, want three more", len(g.keys), err)
	}
}

func TestReplay_SaysWhatToDoAboutProductsThatAreMissing(t *testing.T) {
	g, url := startGateway(t, "22633")
	out, err := execute(t, url, salesFile(t), "--speed=3600")
	if err != nil || !strings.Contains(out, "2 of 3 invoices, 2 lines") || !strings.Contains(out, "left out: 2 lines with 1 products") || !strings.Contains(out, "lab import ") {
		t.Errorf("got %s, %v, want a hint", out, err)
	}
	if len(g.keys) != 2 {
		t.Errorf("got orders %v, want two", g.keys)
	}
	_, url = startGateway(t, "other")
	if _, err := execute(t, url, salesFile(t)); err == nil || !strings.Contains(err.Error(), "none of the 2 products of 2010-12-02: run `lab import ") {
		t.Errorf("got %v, want a hint", err)
	}
}

func TestReplay_NamesTheFlagThatIsWrong(t *testing.T) {
	_, url := startGateway(t, "22633")
	file := salesFile(t)
	for want, args := range map[string][]string{
		"--speed 0":          {"--speed=0"},
		"--speed NaN":        {"--speed=NaN"},
		"--day tomorrow":     {"--day=tomorrow"},
		"--day: 2011-01-01":  {"--day=2011-01-01"},
		"timeout 0s":         {"--timeout=0s"},
		"target \"nowhere\"": {"--target=nowhere"},
	} {
		if _, err := execute(t, url, append([]string{file}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
	if _, err := execute(t, url, filepath.Join(t.TempDir(), "none.csv")); err == nil {
		t.Error("a file that is not there: no error")
	}
}
