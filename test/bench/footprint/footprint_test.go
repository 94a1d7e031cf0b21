package footprint

import (
	"archive/tar"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"example.com/watertight/lab/catalog"
)

func TestResidentTree_CountsAProcessAndItsChildren(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells the memory of a process in /proc")
	}
	alone, err := residentTree(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if alone.own <= 0 || alone.file <= 0 || alone.share <= 0 || alone.share > alone.all+mib || alone.own+alone.file > alone.all+mib {
		t.Errorf("this process: got %+v, whose parts do not make a whole", alone)
	}
	child := exec.CommandContext(t.Context(), "sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	itself, err := residentOf(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	both, err := residentTree(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if itself.all <= 0 || both.all < alone.all/2+itself.all || both.own != 0 {
		t.Errorf("with a child of %+v: got %+v, want more than the %+v without", itself, both, alone)
	}
}

func TestHeaviestImage_IsTheOneWithTheLargestLayers(t *testing.T) {
	folder := t.TempDir()
	write := func(name string, layers ...int) {
		t.Helper()
		file, err := os.Create(filepath.Join(folder, name+"-"+runtime.GOARCH+".tar"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		archive := tar.NewWriter(file)
		for i, size := range append([]int{100_000}, layers...) {
			member := string(rune('a'+i)) + ".tar.gz"
			if i == 0 {
				member = "manifest.json" // which is no layer
			}
			if err := archive.WriteHeader(&tar.Header{Name: member, Size: int64(size), Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
			if _, err := archive.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("recs", 30_000)
	write("search", 20_000, 20_000)
	write("lab", 90_000)
	if name, bytes := heaviestImage(folder, []string{"recs", "search", "gateway"}); name != "search" || bytes != 40_000 {
		t.Errorf("got %q with %v bytes, want search with 40000", name, bytes)
	}
	if name, _ := heaviestImage(t.TempDir(), []string{"recs"}); name != "" {
		t.Errorf("got %q in an empty folder", name)
	}
}

func TestWholesale_HasEachProductOnceAndBasketsOfThem(t *testing.T) {
	goods, err := wholesale(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, p := range goods.Products {
		ids[p.ID] = true
	}
	if len(ids) != products || goods.Currency == "" {
		t.Errorf("got %d different products in %q, want %d", len(ids), goods.Currency, products)
	}
	baskets := map[string]bool{}
	for _, b := range goods.Baskets {
		baskets[b.ID] = true
		for _, p := range b.Products {
			if int(p) >= len(goods.Products) {
				t.Fatalf("basket %s has product %d of %d", b.ID, p, len(goods.Products))
			}
		}
	}
	if authored := len(catalog.Authored().Baskets); len(baskets) != len(goods.Baskets) || len(baskets) < 2*authored {
		t.Errorf("got %d baskets with %d ids, want many times the authored %d", len(goods.Baskets), len(baskets), authored)
	}
}
