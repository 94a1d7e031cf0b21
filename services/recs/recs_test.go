package recs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/postgres/pgtest"
	"example.com/watertight/platform/rpcerr"
	recsv1 "example.com/watertight/proto/recs/v1"
	"example.com/watertight/services/recs"
	"example.com/watertight/services/recs/similarity"
)

// shelf is a little trade: candles with matches, tea with cups, a bag with everything, and one odd sale.
func shelf() []*recsv1.Basket {
	return []*recsv1.Basket{
		basket("1", "BAG", "CANDLE", "MATCHES"),
		basket("2", "bag", "Candle", "MATCHES"),
		basket("3", "BAG", "TEA", "CUP"),
		basket("4", "BAG", "TEA", "CUP"),
		basket("5", "BAG", "ODD"),
	}
}

func expect(t *testing.T, r *replica, product string, limit int32, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, r.recommend(t, product, limit)); diff != "" {
		t.Errorf("recommendations for %q, limit %d (-want +got):\n%s", product, limit, diff)
	}
}

func TestRecommend_WhatIsBoughtTogetherOrElseWhatIsPopular(t *testing.T) {
	r := startReady(t, pgtest.New(t), quick)
	expect(t, r, "", 0, "BASIS_POPULAR")

	resp := r.mustImport(t, shelf())
	if resp.GetBaskets() != 5 || resp.GetProducts() != 5 {
		t.Errorf("import: got %v, want 5 baskets and 5 products with recommendations", resp)
	}
	expect(t, r, "CANDLE", 0, "BASIS_BOUGHT_TOGETHER", "MATCHES 1.0000", "BAG 0.6325")
	expect(t, r, "candle", 0, "BASIS_BOUGHT_TOGETHER", "MATCHES 1.0000", "BAG 0.6325")
	expect(t, r, "candle", 1, "BASIS_BOUGHT_TOGETHER", "MATCHES 1.0000")
	expect(t, r, "", 2, "BASIS_POPULAR", "BAG 1.0000", "CANDLE 0.4000")
	expect(t, r, "unheard of", 2, "BASIS_POPULAR", "BAG 1.0000", "CANDLE 0.4000")
	expect(t, r, "odd", 0, "BASIS_POPULAR", "BAG 1.0000", "CANDLE 0.4000", "CUP 0.4000", "MATCHES 0.4000", "TEA 0.4000")
}

func TestRecommend_NeverTheProductItself(t *testing.T) {
	r := startReady(t, pgtest.New(t), quick)
	r.mustImport(t, shelf())
	for _, product := range []string{"BAG", "bag", "Candle", "ODD", "odd", "tea"} {
		for _, line := range r.recommend(t, product, 50) {
			if id, _, _ := strings.Cut(line, " "); strings.EqualFold(id, product) {
				t.Errorf("%s is recommended with itself", product)
			}
		}
	}
}

func TestRecommend_EightByDefaultFiftyAtMost(t *testing.T) {
	r := startReady(t, pgtest.New(t), quick)
	var all []string
	for i := range 60 {
		all = append(all, fmt.Sprintf("P%02d", i))
	}
	r.mustImport(t, []*recsv1.Basket{basket("1", all...), basket("2", all...)})
	for _, product := range []string{"P00", "", "unheard of"} {
		for limit, want := range map[int32]int{0: 8, 1: 1, 49: 49, 50: 50} {
			if got := len(r.recommend(t, product, limit)) - 1; got != want {
				t.Errorf("product %q, limit %d: got %d recommendations, want %d", product, limit, got, want)
			}
		}
	}
	for _, limit := range []int32{-1, 51, 1<<31 - 1} {
		_, err := r.Recommend(t.Context(), &recsv1.RecommendRequest{Limit: limit})
		if status.Code(err) != codes.InvalidArgument || len(rpcerr.Fields(err)) != 1 || rpcerr.Fields(err)[0].GetField() != "limit" {
			t.Errorf("limit %d: got %v, want INVALID_ARGUMENT that names limit", limit, err)
		}
	}
}

func TestImportBaskets_RepeatedGivesTheSame(t *testing.T) {
	r := startReady(t, pgtest.New(t), quick)
	first := r.mustImport(t, shelf())
	before := r.recommend(t, "candle", 50)
	again := r.mustImport(t, shelf()[:2], shelf()) // two of them twice in one go
	if again.GetProducts() != first.GetProducts() || again.GetBaskets() != 7 {
		t.Errorf("repeated: got %v, want 7 baskets and %d products", again, first.GetProducts())
	}
	if diff := cmp.Diff(before, r.recommend(t, "candle", 50)); diff != "" {
		t.Errorf("recommendations changed:\n%s", diff)
	}
	if got := query[int](t, r, "SELECT count(*)::int FROM baskets"); got != 5 {
		t.Errorf("baskets stored: got %d, want 5", got)
	}
}

func TestImportBaskets_SameIdReplacesTheBasketAndTheLastWins(t *testing.T) {
	r := startReady(t, pgtest.New(t), quick)
	r.mustImport(t, shelf())
	r.mustImport(t, []*recsv1.Basket{basket("1", "X"), basket("1", "BAG", "ODD")})
	expect(t, r, "odd", 0, "BASIS_BOUGHT_TOGETHER", "BAG 0.6325")
	expect(t, r, "matches", 1, "BASIS_POPULAR", "BAG 1.0000")
}

func TestImportBaskets_AMessageAgainstTheContractStoresNothingOfItself(t *testing.T) {
	r := startReady(t, pgtest.New(t), quick)
	_, err := r.importing(t.Context(), shelf(), []*recsv1.Basket{basket("6", "A"), basket("7")})
	if status.Code(err) != codes.InvalidArgument || rpcerr.Fields(err)[0].GetField() != "baskets[1].product_ids" {
		t.Errorf("got %v, want INVALID_ARGUMENT that names baskets[1].product_ids", err)
	}
	if got := query[string](t, r, "SELECT string_agg(id, ' ' ORDER BY id) FROM baskets"); got != "1 2 3 4 5" {
		t.Errorf("baskets stored: got %s, want those of the message before", got)
	}
}

func TestImportBaskets_WhatABrokenStreamLeftIsLearnedLater(t *testing.T) {
	cfg := quick
	cfg.ModelRefresh = 50 * time.Millisecond
	r := startReady(t, pgtest.New(t), cfg)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := r.ImportBaskets(ctx)
	must(t, err)
	must(t, stream.Send(&recsv1.ImportBasketsRequest{Baskets: shelf()}))
	eventually(t, "first message stored", func() (string, bool) {
		n := query[int](t, r, "SELECT count(*)::int FROM baskets")
		return fmt.Sprint(n, " baskets"), n == 5
	})
	cancel()
	eventually(t, "learned", func() (string, bool) {
		got := r.recommend(t, "candle", 1)
		return fmt.Sprint(got), slices.Equal(got, []string{"BASIS_BOUGHT_TOGETHER", "MATCHES 1.0000"})
	})
}

func TestImportBaskets_EndsWhenTheServiceDrains(t *testing.T) {
	r := startReady(t, pgtest.New(t), quick)
	stream, err := r.ImportBaskets(t.Context())
	must(t, err)
	must(t, stream.Send(&recsv1.ImportBasketsRequest{Baskets: shelf()}))
	r.drain()
	eventually(t, "draining", func() (string, bool) {
		// Until the drain has begun the message is stored; then Send fails with EOF and the status is to be had.
		err := stream.Send(&recsv1.ImportBasketsRequest{Baskets: shelf()})
		return fmt.Sprint(err), err != nil
	})
	if _, err = stream.CloseAndRecv(); status.Code(err) != codes.Unavailable || rpcerr.Reason(err) != rpcerr.Draining {
		t.Errorf("got %v, want UNAVAILABLE with reason DRAINING", err)
	}
}

func TestImportBaskets_ManyAtOnceOnTwoReplicasEndInOneModelOfAll(t *testing.T) {
	database := pgtest.New(t)
	replicas := []*replica{startReady(t, database, quick), startReady(t, database, quick)}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	// Each import sends the same ids in its own order, with the same content, so that the end is known.
	var baskets []*recsv1.Basket
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 400 {
		b := basket(fmt.Sprint(i))
		for range 1 + random.IntN(12) {
			b.ProductIds = append(b.ProductIds, fmt.Sprintf("P%02d", random.IntN(40)))
		}
		baskets = append(baskets, b)
	}
	var imports sync.WaitGroup
	for n := range 6 {
		random := rand.New(rand.NewPCG(seed, uint64(n+1)))
		imports.Go(func() {
			mine := slices.Clone(baskets)
			random.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			if _, err := replicas[n%2].importing(t.Context(), slices.Collect(slices.Chunk(mine, 50))...); err != nil {
				t.Errorf("import %d: %v", n, err)
			}
		})
	}
	imports.Wait()

	var all similarity.Baskets
	for _, b := range baskets {
		all.Add(b.GetProductIds())
	}
	want, err := similarity.Compute(t.Context(), &all, similarity.Settings{MinSupport: quick.MinSupport, MaxBasket: quick.MaxBasket})
	must(t, err)
	for i, r := range append(replicas, startReady(t, database, quick)) { // a third, to see what is stored
		for product := range 40 {
			id := fmt.Sprintf("P%02d", product)
			var lines []string
			for _, other := range want.Similar(id, 50) {
				lines = append(lines, fmt.Sprintf("%s %.4f", other.ProductID, other.Score))
			}
			eventually(t, fmt.Sprintf("replica %d serves the model of all for %s", i, id), func() (string, bool) {
				got := r.recommend(t, id, 50)[1:]
				return cmp.Diff(lines, got), slices.Equal(lines, got)
			})
		}
	}
}

func TestModel_AnotherReplicaPicksItUp(t *testing.T) {
	database := pgtest.New(t)
	a, b := startReady(t, database, quick), startReady(t, database, quick)
	a.mustImport(t, shelf())
	eventually(t, "the other replica serves the new model", func() (string, bool) {
		got := b.recommend(t, "candle", 1)
		return fmt.Sprint(got), slices.Equal(got, []string{"BASIS_BOUGHT_TOGETHER", "MATCHES 1.0000"})
	})
}

func TestModel_ARestartServesWhatIsStoredWithoutMakingItAgain(t *testing.T) {
	database := pgtest.New(t)
	r := startReady(t, database, quick)
	r.mustImport(t, shelf())
	before, popular := r.recommend(t, "candle", 50), r.recommend(t, "", 50)
	// A model made again would be empty.
	_, err := r.pool.Exec(t.Context(), "DELETE FROM baskets")
	must(t, err)
	r.stop()

	again := startReady(t, database, quick)
	expect(t, again, "candle", 50, before...)
	expect(t, again, "", 50, popular...)
	if got := query[int](t, again, "SELECT version::int FROM model"); got != 1 {
		t.Errorf("version: got %d, want 1", got)
	}
}

func TestModel_OfARestoredDatabaseReplacesTheOneInMemory(t *testing.T) {
	r := startReady(t, pgtest.New(t), quick)
	r.mustImport(t, shelf())
	_, err := r.pool.Exec(t.Context(), "WITH gone AS (DELETE FROM neighbours) UPDATE model SET version = 0, received = 0, learned = 0, baskets = 0")
	must(t, err)
	eventually(t, "the restored model is served", func() (string, bool) {
		got := r.recommend(t, "candle", 1)
		return fmt.Sprint(got), slices.Equal(got, []string{"BASIS_POPULAR"})
	})
}

func TestDatabaseAway_RecommendationsGoOnAndImportsSayUnavailable(t *testing.T) {
	server := pgtest.NewServer(t)
	r := startReady(t, server.New(), quick)
	r.mustImport(t, shelf())
	before := r.recommend(t, "candle", 0)

	server.Stop()
	for range 100 {
		if diff := cmp.Diff(before, r.recommend(t, "candle", 0)); diff != "" {
			t.Fatalf("recommendations changed:\n%s", diff)
		}
	}
	_, err := r.importing(t.Context(), shelf())
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
		_, err := r.importing(t.Context(), []*recsv1.Basket{basket("6", "A", "B"), basket("7", "A", "B")})
		return fmt.Sprint(err), err == nil
	})
	expect(t, r, "a", 0, "BASIS_BOUGHT_TOGETHER", "B 1.0000")
}

func TestStart_WithoutDatabaseIsAliveAndNotReadyUntilItComes(t *testing.T) {
	server := pgtest.NewServer(t)
	database := server.New()
	first := startReady(t, database, quick)
	first.mustImport(t, shelf())
	first.stop()
	server.Stop()

	r := start(t, database, quick)
	if code, body := r.get(t, "/livez"); code != http.StatusOK {
		t.Errorf("/livez: got %d %s, want 200", code, body)
	}
	if code, body := r.get(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "model") {
		t.Errorf("/readyz: got %d %s, want 503 that names the model", code, body)
	}
	_, err := r.service.Recommend(t.Context(), &recsv1.RecommendRequest{})
	if status.Code(err) != codes.Unavailable || rpcerr.Reason(err) != rpcerr.Unavailable {
		t.Errorf("recommend: got %v, want UNAVAILABLE", err)
	}

	server.Start()
	r.waitReady(t)
	expect(t, r, "candle", 1, "BASIS_BOUGHT_TOGETHER", "MATCHES 1.0000")
}

func TestAddBasket_IsPartOfTheCallersTransactionAndLearnedLater(t *testing.T) {
	cfg := quick
	cfg.ModelRefresh = 50 * time.Millisecond
	r := startReady(t, pgtest.New(t), cfg)
	changed := errors.New("changed my mind")
	err := postgres.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		return errors.Join(r.service.AddBasket(t.Context(), tx, basket("1", "A", "B")), changed)
	})
	if !errors.Is(err, changed) {
		t.Fatalf("got %v, want %v", err, changed)
	}
	if got := query[int](t, r, "SELECT count(*)::int + (SELECT received::int FROM model) FROM baskets"); got != 0 {
		t.Errorf("a rolled back basket left %d rows and changes, want 0", got)
	}
	for _, b := range []*recsv1.Basket{basket("1", "A", "B"), basket("2", "A", "B")} {
		must(t, postgres.InTx(t.Context(), r.pool, func(tx pgx.Tx) error { return r.service.AddBasket(t.Context(), tx, b) }))
	}
	eventually(t, "learned", func() (string, bool) {
		got := r.recommend(t, "a", 0)
		return fmt.Sprint(got), slices.Equal(got, []string{"BASIS_BOUGHT_TOGETHER", "B 1.0000"})
	})
}

func TestConfig_ErrorsNameTheVariable(t *testing.T) {
	for variable, change := range map[string]func(*recs.Config){
		"MIN_SUPPORT":   func(c *recs.Config) { c.MinSupport = 0 },
		"MAX_BASKET":    func(c *recs.Config) { c.MaxBasket = 1 },
		"MODEL_POLL":    func(c *recs.Config) { c.ModelPoll = 0 },
		"MODEL_REFRESH": func(c *recs.Config) { c.ModelRefresh = -time.Second },
	} {
		cfg := quick
		change(&cfg)
		if _, err := recs.New(cfg, recs.Deps{}); err == nil || !strings.HasPrefix(err.Error(), variable+":") {
			t.Errorf("got %v, want an error that starts with %s", err, variable)
		}
	}
}
