package search_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"example.com/watertight/platform/postgres/pgtest"
	"example.com/watertight/platform/rpcerr"
	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/services/search/index"
)

func TestImport_IsFoundAtOnceAndShownAsSent(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	if got := r.find(t, ""); got.GetTotal() != 0 || len(got.GetProducts()) != 0 || got.GetNextPageToken() != "" {
		t.Errorf("before: got %v, want an empty catalog", got)
	}
	sent := product("85123A", "White Hanging Heart T-Light Holder")
	sent.Description = "Zeile 1\nline 2 — “quotes” ☂"
	if got := r.mustImport(t, []*searchv1.Product{sent}, lamps(3)).GetProducts(); got != 4 {
		t.Errorf("import: got %d products, want 4", got)
	}
	got := r.find(t, "hanging heart")
	want := &searchv1.SearchProductsResponse{
		Products: []*searchv1.Product{sent}, Total: 1, Categories: []*searchv1.CategoryCount{{Category: "Home", Products: 1}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("search (-want +got):\n%s", diff)
	}
}

func TestImport_MayBeRepeatedAndThenChangesNothing(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	r.mustImport(t, lamps(120))
	version := query[string](t, r, "SELECT version::text FROM catalog")
	if got := r.mustImport(t, lamps(120)).GetProducts(); got != 120 {
		t.Errorf("import: got %d products, want 120, repeats included", got)
	}
	if got := query[string](t, r, "SELECT version::text FROM catalog"); got != version {
		t.Errorf("version: got %s, want %s still", got, version)
	}
	if got := r.find(t, "").GetTotal(); got != 120 {
		t.Errorf("total: got %d, want 120", got)
	}
}

func TestImport_ReplacesByIDInAnyCaseAndTheLastOfAMessageCounts(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	r.mustImport(t, []*searchv1.Product{product("ab1", "First"), product("X", "Stays")})
	last := product("aB1", "Third")
	last.Price.Minor, last.Popularity, last.Category = 1, 9, "Away"
	if got := r.mustImport(t, []*searchv1.Product{product("AB1", "Second"), last}).GetProducts(); got != 2 {
		t.Errorf("import: got %d products, want 2, repeats included", got)
	}
	got, err := r.GetProducts(t.Context(), &searchv1.GetProductsRequest{Ids: []string{"AB1"}})
	must(t, err)
	if diff := cmp.Diff(last, got.GetProducts()[0], protocmp.Transform()); diff != "" {
		t.Errorf("product (-want +got):\n%s", diff)
	}
	if got := ids(r.find(t, "").GetProducts()); got != "X aB1" {
		t.Errorf("catalog: got %q, want X aB1", got)
	}
}

func TestImport_AppliesEachMessageWholeOrNotAtAll(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	_, err := r.pool.Exec(t.Context(), "ALTER TABLE products ADD CHECK (name <> 'Refused')")
	must(t, err)
	_, err = r.importing(t.Context(), []*searchv1.Product{product("A", "Good")}, []*searchv1.Product{product("B", "Good"), product("C", "Refused")})
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "products") {
		t.Errorf("import: got %v, want INTERNAL without internals", err)
	}
	eventually(t, "the first message is found, the second not", func() (string, bool) {
		got := ids(r.find(t, "").GetProducts())
		return got, got == "A"
	})
}

func TestImport_ChecksEveryMessageAgainstTheContract(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	for field, spoil := range map[string]func(*searchv1.Product){
		"products[1].id":          func(p *searchv1.Product) { p.Id = "" },
		"products[1].name":        func(p *searchv1.Product) { p.Name = "two\nlines" },
		"products[1].category":    func(p *searchv1.Product) { p.Category = strings.Repeat("c", 65) },
		"products[1].price":       func(p *searchv1.Product) { p.Price = nil },
		"products[1].price.minor": func(p *searchv1.Product) { p.Price.Minor = -1 },
		"products[1].popularity":  func(p *searchv1.Product) { p.Popularity = -1 },
	} {
		bad := product("B", "Bad")
		spoil(bad)
		_, err := r.importing(t.Context(), []*searchv1.Product{product("A", "Good"), bad})
		if fields := rpcerr.Fields(err); status.Code(err) != codes.InvalidArgument || len(fields) == 0 || fields[0].GetField() != field {
			t.Errorf("%s: got %v, want INVALID_ARGUMENT that names it", field, err)
		}
	}
	if got := query[int](t, r, "SELECT count(*)::int FROM products"); got != 0 {
		t.Errorf("got %d products stored, want none", got)
	}
}

func TestImport_EndsWhenTheServiceDrains(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	stream, err := r.ImportProducts(t.Context())
	must(t, err)
	must(t, stream.Send(&searchv1.ImportProductsRequest{Products: lamps(2)}))
	r.drain()
	eventually(t, "draining", func() (string, bool) {
		// Until the drain has begun the message is stored; then Send fails with EOF and the status is to be had.
		err := stream.Send(&searchv1.ImportProductsRequest{Products: lamps(2)})
		return fmt.Sprint(err), err != nil
	})
	if _, err = stream.CloseAndRecv(); status.Code(err) != codes.Unavailable || rpcerr.Reason(err) != rpcerr.Draining {
		t.Errorf("got %v, want UNAVAILABLE with reason DRAINING", err)
	}
}

func TestImport_FromManyAtOnceEndsWithEveryProductFound(t *testing.T) {
	database := pgtest.New(t)
	replicas := []*replica{startReady(t, database, ""), startReady(t, database, "")}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			mine := lamps(60)
			if i%2 == 1 { // the other way round, for a deadlock if there were one to have
				for a, b := 0, len(mine)-1; a < b; a, b = a+1, b-1 {
					mine[a], mine[b] = mine[b], mine[a]
				}
			}
			for _, p := range mine {
				p.Popularity = int64(i)
			}
			mine = append(mine, product(fmt.Sprintf("OWN%d", i), "Own"))
			if _, err := replicas[i%2].importing(t.Context(), mine[:30], mine[30:]); err != nil {
				t.Errorf("import %d: %v", i, err)
			}
			if got, err := replicas[i%2].GetProducts(t.Context(), &searchv1.GetProductsRequest{Ids: []string{fmt.Sprintf("own%d", i)}}); err != nil || len(got.GetProducts()) != 1 {
				t.Errorf("import %d: own product: got %v, %v", i, got, err)
			}
		})
	}
	all.Wait()
	for i, r := range replicas {
		eventually(t, fmt.Sprint("replica ", i, " has all"), func() (string, bool) {
			got := r.find(t, "").GetTotal()
			return fmt.Sprint(got), got == 68
		})
	}
}

func TestReplica_SeesWhatAnotherImportedAndAnswersAlike(t *testing.T) {
	database := pgtest.New(t)
	one, other := startReady(t, database, ""), startReady(t, database, "")
	one.mustImport(t, lamps(150))
	one.mustImport(t, []*searchv1.Product{product("L007", "Lamp Bond")})
	eventually(t, "the other replica finds it", func() (string, bool) {
		got := ids(other.find(t, "bond").GetProducts())
		return got, got == "L007"
	})
	// One list, its pages from both in turn.
	var shown []*searchv1.Product
	req := &searchv1.SearchProductsRequest{Query: "lam", PageSize: 13}
	for i := 0; ; i++ {
		resp, err := []*replica{one, other}[i%2].SearchProducts(t.Context(), req)
		must(t, err)
		shown = append(shown, resp.GetProducts()...)
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	whole, err := one.SearchProducts(t.Context(), &searchv1.SearchProductsRequest{Query: "lam", PageSize: 100})
	must(t, err)
	if len(shown) != 150 || !strings.HasPrefix(ids(shown), ids(whole.GetProducts())) {
		t.Errorf("pages from two replicas: got %d products\n%s\nwant 150, first\n%s", len(shown), ids(shown), ids(whole.GetProducts()))
	}
}

func TestPages_AreTwentyByDefaultAndHundredAtMost(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	r.mustImport(t, lamps(230))
	for asked, want := range map[int32]int{0: 20, 1: 1, 100: 100} {
		resp, err := r.SearchProducts(t.Context(), &searchv1.SearchProductsRequest{PageSize: asked})
		must(t, err)
		if len(resp.GetProducts()) != want || resp.GetTotal() != 230 {
			t.Errorf("page_size %d: got %d of %d, want %d of 230", asked, len(resp.GetProducts()), resp.GetTotal(), want)
		}
	}
	for _, asked := range []int32{-1, 101, 1 << 30} {
		_, overRPC := r.SearchProducts(t.Context(), &searchv1.SearchProductsRequest{PageSize: asked})
		_, inProcess := r.service.SearchProducts(t.Context(), &searchv1.SearchProductsRequest{PageSize: asked})
		for _, err := range []error{overRPC, inProcess} {
			if fields := rpcerr.Fields(err); status.Code(err) != codes.InvalidArgument || len(fields) != 1 || fields[0].GetField() != "page_size" {
				t.Errorf("page_size %d: got %v, want INVALID_ARGUMENT naming page_size", asked, err)
			}
		}
	}
}

func TestPageToken_IsRefusedWhenItIsNotOfThisQuery(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	r.mustImport(t, lamps(50))
	req := &searchv1.SearchProductsRequest{Query: "lamp", Category: "Home"}
	first, err := r.SearchProducts(t.Context(), req)
	must(t, err)
	token := first.GetNextPageToken()
	if _, err := r.SearchProducts(t.Context(), &searchv1.SearchProductsRequest{Query: "lamp", Category: "Home", PageSize: 7, PageToken: token}); err != nil {
		t.Errorf("own token, other page size: got %v", err)
	}
	refused := map[string]*searchv1.SearchProductsRequest{
		"another query":    {Query: "lamps", Category: "Home", PageToken: token},
		"another category": {Query: "lamp", PageToken: token},
		"parts moved":      {Query: "lampH", Category: "ome", PageToken: token},
		"not base64":       {Query: "lamp", Category: "Home", PageToken: "§§§"},
		"too short":        {Query: "lamp", Category: "Home", PageToken: "AAAA"},
		"padded":           {Query: "lamp", Category: "Home", PageToken: token + "="},
		"longer":           {Query: "lamp", Category: "Home", PageToken: token + "AAAA"},
		"longest":          {Query: "lamp", Category: "Home", PageToken: strings.Repeat("A", 1024)},
	}
	for i := range token {
		damaged := []byte(token)
		damaged[i] = "AB"[len(strings.Trim(token[i:i+1], "A"))^1]
		if string(damaged) == token {
			damaged[i] = 'C'
		}
		refused[fmt.Sprintf("damaged at %d", i)] = &searchv1.SearchProductsRequest{Query: "lamp", Category: "Home", PageToken: string(damaged)}
	}
	for about, req := range refused {
		_, err := r.SearchProducts(t.Context(), req)
		if fields := rpcerr.Fields(err); status.Code(err) != codes.InvalidArgument || len(fields) != 1 || fields[0].GetField() != "page_token" {
			t.Errorf("%s: got %v, want INVALID_ARGUMENT naming page_token", about, err)
		}
	}
}

func TestPage_OfTheGreatestProductsFitsAMessage(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	const wide = "𝄞" // four bytes, one character
	var messages [][]*searchv1.Product
	for i := range 1100 {
		n := fmt.Sprintf("%04d", i)
		p := product(n+strings.Repeat(wide, 60), "x "+n+strings.Repeat(wide, 250))
		p.Category = n + strings.Repeat(wide, 60)
		if i < 100 {
			p.Popularity, p.Description = 1000, strings.Repeat(wide, 2000)
		}
		if i%100 == 0 {
			messages = append(messages, nil)
		}
		messages[i/100] = append(messages[i/100], p)
	}
	r.mustImport(t, messages...)
	resp, err := r.SearchProducts(t.Context(), &searchv1.SearchProductsRequest{Query: "x", PageSize: 100})
	must(t, err)
	if len(resp.GetProducts()) != 100 || len(resp.GetCategories()) != 1000 || len(resp.GetNextPageToken()) > 1024 {
		t.Errorf("got %d products, %d categories and a token of %d, want 100, 1000 and at most 1024",
			len(resp.GetProducts()), len(resp.GetCategories()), len(resp.GetNextPageToken()))
	}
	if size := proto.Size(resp); size < 1<<20 || size > 2<<20 {
		t.Errorf("got a message of %d bytes, want one to two MiB, well under gRPC's four", size)
	}
}

func TestGetProducts_KeepsTheOrderAndLeavesOutTheUnknown(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	r.mustImport(t, lamps(5))
	resp, err := r.GetProducts(t.Context(), &searchv1.GetProductsRequest{Ids: []string{"L003", "nobody", "l001", "L003"}})
	must(t, err)
	if got := ids(resp.GetProducts()); got != "L003 L001 L003" {
		t.Errorf("got %q, want L003 L001 L003", got)
	}
}

func TestRestart_FindsWhatWasImported(t *testing.T) {
	app, owner := pgtest.NewRoles(t)
	first := startReady(t, app, owner)
	first.mustImport(t, lamps(30))
	first.stop()
	second := startReady(t, app, owner)
	if got := second.find(t, "lamp 029"); got.GetTotal() != 1 || ids(got.GetProducts()) != "L029" {
		t.Errorf("got %v, want L029", got)
	}
}

func TestDatabaseAway_SearchesGoOnAndImportsSayUnavailable(t *testing.T) {
	server := pgtest.NewServer(t)
	r := startReady(t, server.New(), "")
	r.mustImport(t, lamps(30))
	before := r.find(t, "lamp")

	server.Stop()
	eventually(t, "the outage is noticed", func() (string, bool) {
		_, body := r.get(t, "/metrics")
		return body, !strings.Contains(body, "watertight_search_refresh_failures_total 0\n")
	})
	for range 100 {
		if diff := cmp.Diff(before, r.find(t, "lamp"), protocmp.Transform()); diff != "" {
			t.Fatalf("search changed:\n%s", diff)
		}
	}
	_, err := r.importing(t.Context(), lamps(1))
	if status.Code(err) != codes.Unavailable || rpcerr.Reason(err) != rpcerr.Unavailable || strings.Contains(err.Error(), "dial") {
		t.Errorf("import: got %v, want UNAVAILABLE without internals", err)
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := r.get(t, path); code != http.StatusOK {
			t.Errorf("%s: got %d %s, want 200", path, code, body)
		}
	}

	server.Start()
	eventually(t, "imports work again", func() (string, bool) {
		_, err := r.importing(t.Context(), []*searchv1.Product{product("NEW", "New Chair")})
		return fmt.Sprint(err), err == nil
	})
	if got := ids(r.find(t, "chair").GetProducts()); got != "NEW" {
		t.Errorf("after the outage: got %q, want NEW", got)
	}
}

func TestStart_WithoutDatabaseIsAliveAndNotReadyUntilItComes(t *testing.T) {
	server := pgtest.NewServer(t)
	database := server.New()
	first := startReady(t, database, "")
	first.mustImport(t, lamps(3))
	first.stop()
	server.Stop()

	r := start(t, database, "")
	if code, body := r.get(t, "/livez"); code != http.StatusOK {
		t.Errorf("/livez: got %d %s, want 200", code, body)
	}
	if code, body := r.get(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "catalog") {
		t.Errorf("/readyz: got %d %s, want 503 that names the catalog", code, body)
	}
	_, searchErr := r.service.SearchProducts(t.Context(), &searchv1.SearchProductsRequest{})
	_, getErr := r.service.GetProducts(t.Context(), &searchv1.GetProductsRequest{Ids: []string{"L001"}})
	for _, err := range []error{searchErr, getErr} {
		if _, wait := rpcerr.Delay(err); status.Code(err) != codes.Unavailable || rpcerr.Reason(err) != rpcerr.Unavailable || !wait {
			t.Errorf("got %v, want UNAVAILABLE and when to come back", err)
		}
	}

	server.Start()
	r.waitReady(t)
	if got := r.find(t, "").GetTotal(); got != 3 {
		t.Errorf("total: got %d, want 3", got)
	}
}

func TestReplica_FollowsADatabaseThatWasRestored(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	r.mustImport(t, lamps(10))
	_, err := r.pool.Exec(t.Context(), "WITH gone AS (DELETE FROM products WHERE key > 'l004') UPDATE catalog SET version = gen_random_uuid()")
	must(t, err)
	eventually(t, "the restored catalog is served", func() (string, bool) {
		got := r.find(t, "").GetTotal()
		return fmt.Sprint(got), got == 5
	})
}

func TestSearch_GoesOnWhileTheCatalogIsReplaced(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	r.mustImport(t, lamps(40))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				resp, err := r.SearchProducts(t.Context(), &searchv1.SearchProductsRequest{Query: "lmap"}, grpc.WaitForReady(true))
				if err != nil || resp.GetTotal() != 40 || len(resp.GetProducts()) != 20 {
					t.Errorf("got %d of %d, %v; want 20 of 40", len(resp.GetProducts()), resp.GetTotal(), err)
					return
				}
			}
		})
	}
	for i := range 20 {
		changed := lamps(40)
		for _, p := range changed {
			p.Popularity = int64(i)
		}
		r.mustImport(t, changed)
	}
	cancel()
	all.Wait()
}

func TestGetProducts_FindsIDsInAnyCaseBeyondASCII(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	odd := []*searchv1.Product{product("É1", "Upper"), product("ẞ", "Sharp"), product("İ", "Dotted"), product("\u212a", "Kelvin")}
	r.mustImport(t, odd)
	for _, p := range odd {
		got, err := r.GetProducts(t.Context(), &searchv1.GetProductsRequest{Ids: []string{index.Key(p.GetId())}})
		must(t, err)
		if len(got.GetProducts()) != 1 || got.GetProducts()[0].GetName() != p.GetName() {
			t.Errorf("%s: got %v, want %s", p.GetId(), got.GetProducts(), p.GetName())
		}
	}
	if got := query[int](t, r, "SELECT count(*)::int FROM products"); got != len(odd) {
		t.Errorf("got %d products stored, want %d", got, len(odd))
	}
}

func TestMetrics_TellTheSizeOfTheIndexAndWhatItTook(t *testing.T) {
	r := startReady(t, pgtest.New(t), "")
	r.mustImport(t, lamps(12))
	_, body := r.get(t, "/metrics")
	if !strings.Contains(body, "watertight_search_products 12\n") || !strings.Contains(body, "watertight_search_index_build_seconds ") {
		t.Errorf("got\n%s\nwant 12 products and a build time", body)
	}
}
