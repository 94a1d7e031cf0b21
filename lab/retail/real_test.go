package retail_test

import (
	"cmp"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"example.com/watertight/lab/catalog"
	"example.com/watertight/lab/retail"
)

// The real data set is not part of this repository; name a copy to check it.
func TestRead_TheRealFile(t *testing.T) {
	path := os.Getenv("ONLINE_RETAIL_FILE")
	if path == "" {
		t.Skip("ONLINE_RETAIL_FILE is not set: no copy of the Online Retail data to read")
	}
	start := time.Now()
	data, err := retail.ReadFile(t.Context(), path, retail.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	t.Logf("read in %v, %d MiB from the system", time.Since(start).Round(time.Millisecond), memory.Sys>>20)
	t.Logf("report: %+v", data.Report)

	sold := make([]int64, len(data.Catalog.Products))
	for _, invoice := range data.Invoices {
		for _, line := range invoice.Lines {
			sold[line.Product] += line.Quantity
		}
	}
	categories := map[string]int{}
	order := make([]int, len(sold))
	for i, p := range data.Catalog.Products {
		order[i] = i
		categories[p.Category]++
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(sold[b], sold[a]) })
	for _, i := range order[:10] {
		t.Logf("%7d sold: %+v", sold[i], data.Catalog.Products[i])
	}
	t.Logf("categories: %v", categories)

	at, found := slices.BinarySearchFunc(data.Catalog.Products, "85123A", func(p catalog.Product, id string) int {
		return cmp.Compare(p.ID, id)
	})
	if !found {
		t.Fatal("85123A is missing")
	}
	if got, want := data.Catalog.Products[at].Name, "White Hanging Heart T-Light Holder"; got != want {
		t.Errorf("name of 85123A: got %q, want %q", got, want)
	}
	if got := data.Report.Lines; got != 541_909 {
		t.Errorf("lines: got %d, want 541909", got)
	}
	if got := data.Report.BrokenLines; got != 0 {
		t.Errorf("broken lines: got %d, want 0: %v", got, data.Report.FirstBroken)
	}
}
