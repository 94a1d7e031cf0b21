package importer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/lab/catalog"
	"example.com/watertight/lab/importer"
	"example.com/watertight/platform/rpc/contract"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	inventoryv1 "example.com/watertight/proto/inventory/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
)

// shop is the four services' import calls, kept in memory. It holds every message against the contract.
type shop struct {
	searchv1.UnimplementedSearchServiceServer
	checkoutv1.UnimplementedCheckoutServiceServer
	recsv1.UnimplementedRecsServiceServer
	inventoryv1.UnimplementedInventoryServiceServer

	rules contract.Rules
	// fail, when set, is asked before each message and may end the stream.
	fail func(call string, message int) error

	mu       sync.Mutex
	products map[string]*searchv1.Product
	prices   map[string]int64
	baskets  map[string][]string
	stock    map[string]int64
	messages map[string]int
	largest  int
}

// serve starts the shop on a port of this machine and returns targets that all point to it.
func serve(t *testing.T, s *shop) importer.Targets {
	t.Helper()
	s.products, s.prices = map[string]*searchv1.Product{}, map[string]int64{}
	s.baskets, s.stock, s.messages = map[string][]string{}, map[string]int64{}, map[string]int{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	searchv1.RegisterSearchServiceServer(server, s)
	checkoutv1.RegisterCheckoutServiceServer(server, s)
	recsv1.RegisterRecsServiceServer(server, s)
	inventoryv1.RegisterInventoryServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			t.Error(err)
		}
	})
	addr := listener.Addr().String()
	return importer.Targets{Search: addr, Checkout: addr, Recs: addr, Inventory: addr}
}

// receive takes a whole stream, message by message, and returns how many items it held.
func receive[Request any, Response any](s *shop, call string, stream grpc.ClientStreamingServer[Request, Response], store func(*Request) int) (int64, error) {
	var total int64
	for message := 1; ; message++ {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return 0, err
		}
		if s.fail != nil {
			if err := s.fail(call, message); err != nil {
				return 0, err
			}
		}
		m := any(request).(proto.Message)
		if err := s.rules.Check(m); err != nil {
			return 0, err
		}
		s.mu.Lock()
		total += int64(store(request))
		s.messages[call]++
		s.largest = max(s.largest, proto.Size(m))
		s.mu.Unlock()
	}
}

func (s *shop) ImportProducts(stream grpc.ClientStreamingServer[searchv1.ImportProductsRequest, searchv1.ImportProductsResponse]) error {
	n, err := receive(s, "products", stream, func(r *searchv1.ImportProductsRequest) int {
		for _, p := range r.GetProducts() {
			s.products[p.GetId()] = p
		}
		return len(r.GetProducts())
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(&searchv1.ImportProductsResponse{Products: n})
}

func (s *shop) ImportPrices(stream grpc.ClientStreamingServer[checkoutv1.ImportPricesRequest, checkoutv1.ImportPricesResponse]) error {
	n, err := receive(s, "prices", stream, func(r *checkoutv1.ImportPricesRequest) int {
		for _, p := range r.GetPrices() {
			s.prices[p.GetProductId()] = p.GetPrice().GetMinor()
		}
		return len(r.GetPrices())
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(&checkoutv1.ImportPricesResponse{Prices: n})
}

func (s *shop) ImportBaskets(stream grpc.ClientStreamingServer[recsv1.ImportBasketsRequest, recsv1.ImportBasketsResponse]) error {
	n, err := receive(s, "baskets", stream, func(r *recsv1.ImportBasketsRequest) int {
		for _, b := range r.GetBaskets() {
			s.baskets[b.GetId()] = b.GetProductIds()
		}
		return len(r.GetBaskets())
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(&recsv1.ImportBasketsResponse{Baskets: n})
}

func (s *shop) ImportStock(stream grpc.ClientStreamingServer[inventoryv1.ImportStockRequest, inventoryv1.ImportStockResponse]) error {
	n, err := receive(s, "stock", stream, func(r *inventoryv1.ImportStockRequest) int {
		for _, c := range r.GetCounts() {
			s.stock[c.GetProductId()] = c.GetAvailable()
		}
		return len(r.GetCounts())
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(&inventoryv1.ImportStockResponse{Products: n})
}

// check compares what the shop holds with the catalog, item by item.
func (s *shop) check(t *testing.T, c catalog.Catalog) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.products) != len(c.Products) || len(s.prices) != len(c.Products) || len(s.stock) != len(c.Products) || len(s.baskets) != len(c.Baskets) {
		t.Errorf("products, prices, stock, baskets: got %d, %d, %d, %d, want %d thrice and %d",
			len(s.products), len(s.prices), len(s.stock), len(s.baskets), len(c.Products), len(c.Baskets))
	}
	for _, p := range c.Products {
		got := s.products[p.ID]
		shown := catalog.Product{ID: got.GetId(), Name: got.GetName(), Description: got.GetDescription(), Category: got.GetCategory(), PriceMinor: got.GetPrice().GetMinor(), Stock: s.stock[p.ID], Sold: got.GetPopularity()}
		if diff := cmp.Diff(p, shown); diff != "" {
			t.Fatalf("product (-want +got):\n%s", diff)
		}
		if s.prices[p.ID] != p.PriceMinor || got.GetPrice().GetCurrency() != c.Currency {
			t.Fatalf("price of %s: got %d %s, want %d %s", p.ID, s.prices[p.ID], got.GetPrice().GetCurrency(), p.PriceMinor, c.Currency)
		}
	}
	for _, b := range c.Baskets {
		var want []string
		for _, p := range b.Products {
			want = append(want, c.Products[p].ID)
		}
		if diff := cmp.Diff(want, s.baskets[b.ID]); diff != "" {
			t.Fatalf("basket %s (-want +got):\n%s", b.ID, diff)
		}
	}
}

func TestRun_BringsTheAuthoredCatalogInAndAgain(t *testing.T) {
	s := &shop{}
	targets, c := serve(t, s), catalog.Authored()
	for range 2 {
		report, err := importer.Run(t.Context(), targets, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := importer.Report{Services: []importer.Stored{
			{Service: "search", Items: "products", Stored: 336, Attempts: 1},
			{Service: "checkout", Items: "prices", Stored: 336, Attempts: 1},
			{Service: "recs", Items: "baskets", Stored: 3000, Attempts: 1},
			{Service: "inventory", Items: "stock counts", Stored: 336, Attempts: 1},
		}}
		if diff := cmp.Diff(want, report); diff != "" {
			t.Errorf("report (-want +got):\n%s", diff)
		}
		s.check(t, c)
	}
}

func TestRun_LeavesInventoryOutWhenThereIsNone(t *testing.T) {
	s := &shop{}
	targets := serve(t, s)
	targets.Inventory = ""
	report, err := importer.Run(t.Context(), targets, catalog.Authored(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Services) != 3 || len(s.stock) != 0 {
		t.Errorf("services, stock counts: got %d, %d, want 3, 0", len(report.Services), len(s.stock))
	}
}

func TestRun_LongBasketsStayBelowTheMessageLimit(t *testing.T) {
	c := catalog.Catalog{Currency: "GBP"}
	var all []int32
	for i := range 1201 {
		c.Products = append(c.Products, catalog.Product{
			ID: fmt.Sprintf("%s%04d", strings.Repeat("X", 60), i), Name: "Mug", Category: "Home", PriceMinor: 1, Stock: 1,
		})
		all = append(all, int32(i))
	}
	for i := range 100 {
		c.Baskets = append(c.Baskets, catalog.Basket{ID: fmt.Sprint(i), Products: all[:1200]})
	}
	oversized := catalog.Basket{ID: "oversized", Products: all}
	s := &shop{}
	targets := serve(t, s)
	withOversized := c
	withOversized.Baskets = append([]catalog.Basket{oversized}, c.Baskets...)
	report, err := importer.Run(t.Context(), targets, withOversized, nil)
	if err != nil {
		t.Fatal(err)
	}
	if report.OversizedBaskets != 1 {
		t.Errorf("oversized baskets: got %d, want 1", report.OversizedBaskets)
	}
	s.check(t, c)
	if s.largest > 1<<20+4096 {
		t.Errorf("largest message: got %d bytes, want about 1 MiB at most", s.largest)
	}
}

func TestRun_SendsAStreamAgainThatBecameUnavailable(t *testing.T) {
	var mu sync.Mutex
	failures := 0
	s := &shop{fail: func(call string, message int) error {
		mu.Lock()
		defer mu.Unlock()
		if call == "baskets" && message == 3 && failures < 2 {
			failures++
			return status.Error(codes.Unavailable, "draining")
		}
		return nil
	}}
	targets, c := serve(t, s), catalog.Authored()
	report, err := importer.Run(t.Context(), targets, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := report.Services[2].Attempts; got != 3 {
		t.Errorf("attempts at recs: got %d, want 3", got)
	}
	s.check(t, c)
}

func TestRun_GivesUpOnAServiceThatStaysAway(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	targets := serve(t, &shop{})
	targets.Recs = closed.Addr().String()
	_, err = importer.Run(t.Context(), targets, catalog.Authored(), nil)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "recs at "+targets.Recs) {
		t.Errorf("error: got %v, want UNAVAILABLE that names recs and its address", err)
	}
}

func TestRun_AnythingButUnavailableIsFinal(t *testing.T) {
	calls := make(chan struct{}, 10)
	s := &shop{fail: func(call string, _ int) error {
		if call != "prices" {
			return nil
		}
		calls <- struct{}{}
		return status.Error(codes.InvalidArgument, "prices[3].name: too long")
	}}
	_, err := importer.Run(t.Context(), serve(t, s), catalog.Authored(), nil)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "prices[3].name") {
		t.Errorf("error: got %v, want the service's own", err)
	}
	if len(calls) != 1 {
		t.Errorf("calls: got %d, want 1", len(calls))
	}
}

func TestRun_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped by hand")
	s := &shop{fail: func(call string, _ int) error {
		if call == "products" {
			cancel(stop)
			return status.Error(codes.Unavailable, "gone")
		}
		return nil
	}}
	if _, err := importer.Run(ctx, serve(t, s), catalog.Authored(), nil); !errors.Is(err, stop) {
		t.Errorf("error: got %v, want %v", err, stop)
	}
}

func TestRun_ReportsProgressToTheEnd(t *testing.T) {
	var mu sync.Mutex
	last := map[string]importer.Progress{}
	_, err := importer.Run(t.Context(), serve(t, &shop{}), catalog.Authored(), func(p importer.Progress) {
		mu.Lock()
		defer mu.Unlock()
		last[p.Service] = p
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range []string{"search", "checkout", "recs", "inventory"} {
		if p := last[service]; p.Done == 0 || p.Done != p.Total {
			t.Errorf("last progress of %s: got %+v, want all done", service, p)
		}
	}
}

const sales = `InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country
536365,85123A,WHITE HANGING HEART T-LIGHT HOLDER,6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom
536365,71053,WHITE METAL LANTERN,6,2010-12-01 08:26:00,3.39,17850.0,United Kingdom
536366,85123a,WHITE HANGING HEART T-LIGHT HOLDER,6,2010-12-01 08:28:00,2.55,17850.0,United Kingdom
C536379,71053,WHITE METAL LANTERN,-1,2010-12-01 09:41:00,3.39,14527.0,United Kingdom
broken
`

func parse(t *testing.T, args ...string) (*importer.Command, error) {
	t.Helper()
	command := &importer.Command{}
	parser, err := kong.New(command, kong.Name("import"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(args)
	return command, err
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sales.csv")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func flags(t importer.Targets) []string {
	return []string{"--search-addr", t.Search, "--checkout-addr", t.Checkout, "--recs-addr", t.Recs, "--inventory-addr", t.Inventory}
}

func TestCommand_ImportsAFileTwiceWithOneResult(t *testing.T) {
	s := &shop{}
	args := append(flags(serve(t, s)), "--stock", "7", "--output", "json", write(t, sales))
	for range 2 {
		command, err := parse(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := command.Run(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		var got importer.Outcome
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("output is not JSON: %v\n%s", err, out.String())
		}
		if c := got.Cleaning; c.Lines != 5 || c.SaleLines != 3 || c.Cancellations != 1 || c.BrokenLines != 1 || c.SpellingsMerged != 1 {
			t.Errorf("cleaning: got %+v", c)
		}
		if got.Import == nil || got.Import.Services[0].Stored != 2 || got.Import.Services[2].Stored != 2 {
			t.Errorf("import: got %+v, want 2 products and 2 baskets", got.Import)
		}
		if diff := cmp.Diff(map[string]int64{"71053": 7, "85123A": 7}, s.stock); diff != "" {
			t.Errorf("stock (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string][]string{"536365": {"71053", "85123A"}, "536366": {"85123A"}}, s.baskets); diff != "" {
			t.Errorf("baskets (-want +got):\n%s", diff)
		}
	}
}

func TestCommand_DryRunSendsNothing(t *testing.T) {
	s := &shop{}
	command, err := parse(t, append(flags(serve(t, s)), "--dry-run", write(t, sales))...)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := command.Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if len(s.messages) != 0 {
		t.Errorf("messages: got %v, want none", s.messages)
	}
	for _, want := range []string{"1  cancellations left out", "2  products\n", "line 6: fields: 1 instead of 8", "nothing sent"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "\r") {
		t.Errorf("a progress bar was drawn where there is no terminal: %q", out.String())
	}
}

func TestCommand_AFileOfAnotherLayoutChangesNothing(t *testing.T) {
	for _, content := range []string{"", "id,name\n1,mug\n", strings.SplitAfter(sales, "\n")[0]} {
		s := &shop{}
		command, err := parse(t, append(flags(serve(t, s)), write(t, content))...)
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "sales.csv") {
			t.Errorf("%q: got error %v, want one that names the file", content, err)
		}
		if len(s.messages) != 0 {
			t.Errorf("%q: messages: got %v, want none", content, s.messages)
		}
	}
}

func TestCommand_GivesUpAfterItsTimeout(t *testing.T) {
	targets := serve(t, &shop{fail: func(string, int) error { return status.Error(codes.Unavailable, "starting") }})
	command, err := parse(t, append(flags(targets), "--timeout", "50ms", write(t, sales))...)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := command.Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "--timeout") {
		t.Errorf("error: got %v, want one that names --timeout", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("gave up after %v", took)
	}
}

func TestCommand_RefusesAnUnknownOutput(t *testing.T) {
	if _, err := parse(t, "--output", "yaml", "sales.csv"); err == nil || !strings.Contains(err.Error(), "--output") {
		t.Errorf("error: got %v, want one that names --output", err)
	}
}

// Every message of the real data must satisfy the contracts. The data set is not part of this repository.
func TestCommand_TheRealFile(t *testing.T) {
	path := os.Getenv("ONLINE_RETAIL_FILE")
	if path == "" {
		t.Skip("ONLINE_RETAIL_FILE is not set: no copy of the Online Retail data to import")
	}
	s := &shop{}
	command, err := parse(t, append(flags(serve(t, s)), path)...)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := command.Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	t.Logf("messages %v, the largest of %d bytes\n%s", s.messages, s.largest, out.String())
	if s.products["85123A"] == nil || s.prices["85123A"] == 0 || s.stock["85123A"] < 100 {
		t.Error("85123A is missing or has no price or stock")
	}
}
