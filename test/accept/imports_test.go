//go:build unix

package accept

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	checkoutv1 "example.com/watertight/proto/checkout/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
	"example.com/watertight/test/shop"
)

// dear is the id of a product that costs all the money there is.
func dear(t *testing.T, s *shop.Shop) string {
	t.Helper()
	const id = "ACCEPT-DEAR"
	stream, err := checkoutv1.NewCheckoutServiceClient(dial(t, s, "checkout")).ImportPrices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	price := &checkoutv1.Price{ProductId: id, Name: "Priceless", Price: &moneyv1.Money{Currency: "GBP", Minor: 1<<63 - 1}}
	if err := stream.Send(&checkoutv1.ImportPricesRequest{Prices: []*checkoutv1.Price{price}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	return id
}

// sales is a small file in the Online Retail layout: three products that are bought together, one that is bought alone,
// and one line of each kind that an import leaves out.
func sales() string {
	var b strings.Builder
	b.WriteString("InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n")
	line := func(invoice int, code, name string, quantity int, price string) {
		fmt.Fprintf(&b, "%d,%s,%s,%d,12/1/2010 8:%02d,%s,17850,United Kingdom\n", invoice, code, name, quantity, invoice%60, price)
	}
	for i := range 40 {
		line(910000+i, "91001A", "BRASS SHIPS BELL", 2, "12.50")
		line(910000+i, "91002", "TARRED ROPE COIL", 3, "4.25")
		if i%2 == 0 {
			line(910000+i, "91003", "OAK BELAYING PIN", 1, "7.95")
		}
		line(910100+i, "91004", "PAPER SEA CHART", 1, "2.10")
	}
	b.WriteString("910200,91002,TARRED ROPE COIL,1,12/3/2010 9:00,4.75,17850,United Kingdom\n") // the latest price
	line(910201, "91001a", "BRASS SHIPS BELL", 1, "12.50")
	line(910202, "POST", "POSTAGE", 1, "18.00")
	line(910203, "91004", "", 1, "0.00")
	line(910204, "91004", "PAPER SEA CHART", -5, "2.10")
	b.WriteString("C910205,91004,PAPER SEA CHART,-1,12/2/2010 9:00,2.10,17850,United Kingdom\n")
	b.WriteString("910206,91004,PAPER SEA CHART,many,12/2/2010 9:00,2.10,17850,United Kingdom\n")
	return b.String()
}

// imported runs `lab import` for this shop and returns the report.
func imported(t *testing.T, s *shop.Shop, file string) (report importReport, peakKiB int64) {
	t.Helper()
	args := []string{"import", "--output", "json", file}
	for _, service := range []string{"checkout", "search", "recs", "inventory"} {
		if p, ok := s.Processes(t)[service]; ok {
			args = append(args, "--"+service+"-addr", p.Addresses["grpc"])
		}
	}
	out, rusage := s.Lab(t, args...)
	var answer importReport
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("lab import: %v in %s", err, out)
	}
	return answer, rusage.Maxrss
}

// importReport is what an import says, without what differs from one to the next: how long it took and how often it tried.
type importReport struct {
	Cleaning map[string]any `json:"cleaning"`
	Import   struct {
		Services []struct {
			Service string `json:"service"`
			Items   string `json:"items"`
			Stored  int64  `json:"stored"`
		} `json:"services"`
	} `json:"import"`
}

func TestImport_BringsAFileIntoTheShopAndAgainChangesNothing(t *testing.T) {
	s := live.Get(t)
	file := filepath.Join(t.TempDir(), "sales.csv.gz")
	writeGzip(t, file, sales())
	var reports [2]importReport
	var seen [2]string
	for i := range seen {
		reports[i], _ = imported(t, s, file)
		var list productList
		found := s.Get(t, "/api/v1/products?q=ships+bell")
		if found.Into(t, http.StatusOK, &list); len(list.Products) == 0 || list.Products[0].ID != "91001A" {
			t.Fatalf("import %d: %+v, want 91001A first; report %+v", i+1, list.Products, reports[i])
		}
		// recs has learned, and its replicas follow a moment later.
		shop.Eventually(t, 20*time.Second, "rope and pins are recommended for the bell", func() bool {
			a := s.Get(t, "/api/v1/products/91001A")
			var page productPage
			a.Into(t, http.StatusOK, &page)
			seen[i] = found.Body + a.Body
			var ids []string
			for _, r := range page.Recommendations {
				ids = append(ids, r.ID)
			}
			return slices.Equal(ids, []string{"91002", "91003"}) // never the chart, which nobody bought with a bell
		})
	}
	if diff := cmp.Diff(reports[0], reports[1]); diff != "" {
		t.Errorf("the second report differs (-first +second):\n%s", diff)
	}
	if seen[0] != seen[1] {
		t.Errorf("the second import changed something:\n%s\n%s", seen[0], seen[1])
	}
	o := mustPlace(t, s, newKey(), wish(someone(), "91002", "2"))
	if o.Total != 2*475 {
		t.Errorf("two coils of rope cost %d, want 950 at the latest price", o.Total)
	}
	for counted, want := range map[string]float64{"cancellations": 1, "returns": 1, "non_products": 1, "broken_lines": 1, "spellings_merged": 1, "products": 4} {
		if got, ok := reports[0].Cleaning[counted].(float64); !ok || got != want {
			t.Errorf("%s: got %v, want %v in %v", counted, reports[0].Cleaning[counted], want, reports[0].Cleaning)
		}
	}
}

func writeGzip(t *testing.T, path, content string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packed := gzip.NewWriter(file)
	if _, err := packed.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
}

// The real data set is not part of this repository; name a copy to check it.
func TestImport_TheRealFile(t *testing.T) {
	path := os.Getenv("ONLINE_RETAIL_FILE")
	if path == "" {
		t.Skip("ONLINE_RETAIL_FILE is not set: no copy of the Online Retail data to import")
	}
	s := live.Get(t)
	start := time.Now()
	report, peak := imported(t, s, path)
	took := time.Since(start)
	t.Logf("%v, %d MiB at most: %+v", took.Round(100*time.Millisecond), peak>>10, report)
	if peak > 400<<10 {
		t.Errorf("lab held %d MiB, want less than 400", peak>>10)
	}
	if took > time.Minute { // 30 s on two cores that do nothing else
		t.Errorf("it took %v", took)
	}
	var list productList
	s.Get(t, "/api/v1/products?q=hanging+heart").Into(t, http.StatusOK, &list)
	if len(list.Products) == 0 || list.Products[0].ID != "85123A" {
		t.Fatalf("hanging heart finds %+v, want 85123A first", list.Products)
	}
	var page productPage
	shop.Eventually(t, 20*time.Second, "85123A has recommendations", func() bool {
		s.Get(t, "/api/v1/products/85123A").Into(t, http.StatusOK, &page)
		return len(page.Recommendations) == 8
	})
	akin := 0
	for _, r := range page.Recommendations {
		t.Logf("%.4f %s %s", r.Score, r.ID, r.Name)
		name := strings.ToLower(r.Name)
		if strings.Contains(name, "heart") || strings.Contains(name, "t-light") || strings.Contains(name, "candle") || strings.Contains(name, "hanging") {
			akin++
		}
	}
	if akin < 2 {
		t.Errorf("%d of 8 recommendations have to do with hearts and candles, want some", akin)
	}
}
