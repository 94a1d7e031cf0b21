package poison_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"example.com/watertight/gateway/poison"
	recsv1 "example.com/watertight/proto/recs/v1"
)

var standard = poison.Config{Deaths: 2, Ratio: 0.3, Window: 10 * time.Minute}

func newReport(t *testing.T) *poison.Report {
	t.Helper()
	r, err := poison.New(standard, recsv1.RecsService_Recommend_FullMethodName, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The ways that a try can end.
var (
	died     = status.Error(codes.Unavailable, "error reading from server: EOF")
	late     = status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	answered = []stats.RPCStats{&stats.InTrailer{Client: true}}
)

// try plays gRPC's events for one try.
func try(r *poison.Report, product string, err error, events ...stats.RPCStats) {
	ctx := r.TagRPC(context.Background(), &stats.RPCTagInfo{FullMethodName: recsv1.RecsService_Recommend_FullMethodName})
	r.HandleRPC(ctx, &stats.Begin{Client: true})
	r.HandleRPC(ctx, &stats.OutHeader{Client: true, RemoteAddr: &net.TCPAddr{}})
	r.HandleRPC(ctx, &stats.OutPayload{Client: true, Payload: &recsv1.RecommendRequest{ProductId: product}})
	for _, e := range events {
		r.HandleRPC(ctx, e)
	}
	r.HandleRPC(ctx, &stats.End{Client: true, Error: err})
}

func times(n int, do func()) {
	for range n {
		do()
	}
}

func TestReport_BlamesTheProductAndNotThePopularOne(t *testing.T) {
	r := newReport(t)
	times(1000, func() { try(r, "popular", nil, answered...) })
	times(5, func() { try(r, "popular", died); try(r, "poison", died) })
	times(3, func() { try(r, "sometimes", died) })
	times(5, func() { try(r, "SomeTimes", nil, answered...) })
	want := []poison.Suspect{{ProductID: "POISON", Deaths: 5, Served: 0, Ratio: 1}, {ProductID: "SOMETIMES", Deaths: 3, Served: 5, Ratio: 0.375}}
	if diff := cmp.Diff(want, r.Suspects()); diff != "" {
		t.Errorf("suspects (-want +got):\n%s", diff)
	}
}

func TestReport_CountsOnlyWhatDiedInFlight(t *testing.T) {
	r := newReport(t)
	unavailable := status.Error(codes.Unavailable, "not loaded yet")
	try(r, "refused by the server", unavailable, answered...)
	try(r, "late", late)
	try(r, "", died) // no product
	try(r, strings.Repeat("x", 65), died)

	ctx := r.TagRPC(t.Context(), &stats.RPCTagInfo{FullMethodName: recsv1.RecsService_Recommend_FullMethodName})
	r.HandleRPC(ctx, &stats.OutPayload{Client: true, Payload: &recsv1.RecommendRequest{ProductId: "no connection"}})
	r.HandleRPC(ctx, &stats.End{Client: true, Error: unavailable})
	ctx = r.TagRPC(t.Context(), &stats.RPCTagInfo{FullMethodName: "/grpc.health.v1.Health/Watch"})
	r.HandleRPC(ctx, &stats.End{Client: true, Error: died})

	if diff := cmp.Diff([]poison.Suspect{}, r.Suspects()); diff != "" {
		t.Errorf("suspects (-want +got):\n%s", diff)
	}
	try(r, "died", died)
	if got := r.Suspects(); len(got) != 1 || got[0].ProductID != "DIED" {
		t.Errorf("suspects = %+v", got)
	}
}

func TestReport_WarnsOncePerProductAndForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReport(t)
		var log strings.Builder
		r.LogTo(slog.New(slog.NewTextHandler(&log, nil)))
		warnings := func() int { return strings.Count(log.String(), "product_id=POISON") }
		try(r, "poison", died)
		if warnings() != 0 {
			t.Errorf("a warning for one death: %s", log.String())
		}
		times(3, func() { try(r, "poison", died) })
		if warnings() != 1 {
			t.Errorf("%d warnings, want one: %s", warnings(), log.String())
		}
		time.Sleep(standard.Window)
		if got := r.Suspects(); len(got) != 1 || got[0].Deaths != 4 {
			t.Errorf("after one window: %+v, want the four deaths", got)
		}
		try(r, "poison", died)
		if got := r.Suspects(); len(got) != 1 || got[0].Deaths != 5 || warnings() != 1 {
			t.Errorf("across the window's halves: %+v and %d warnings, want 5 deaths and 1", got, warnings())
		}
		time.Sleep(2 * standard.Window)
		if got := r.Suspects(); len(got) != 0 {
			t.Errorf("after two more: %+v, want none", got)
		}
		times(2, func() { try(r, "poison", died) })
		if warnings() != 2 {
			t.Errorf("%d warnings, want another after it was forgotten", warnings())
		}
	})
}

// A client that makes up product ids neither fills the memory nor pushes out what counts.
func TestReport_KeepsWhatCountsInBoundedMemory(t *testing.T) {
	r := newReport(t)
	times(500, func() { try(r, "popular", nil, answered...) })
	times(5, func() { try(r, "poison", died) })
	for i := range 50_000 {
		try(r, fmt.Sprintf("made-up-%d", i), nil, answered...)
	}
	try(r, "popular", died)
	if got := r.Suspects(); len(got) != 1 || got[0].ProductID != "POISON" || got[0].Deaths != 5 {
		t.Errorf("suspects = %+v, want poison with its 5 deaths, and not popular", got)
	}
	if got := r.Products(); got > 2*4096 {
		t.Errorf("%d products are counted, want a bound", got)
	}
}

func TestReport_ListsAtMostTwenty(t *testing.T) {
	r := newReport(t)
	for i := range 100 {
		times(1+i%3, func() { try(r, fmt.Sprintf("p-%d", i), died) })
	}
	got := r.Suspects()
	if len(got) != 20 || got[0].Deaths != 3 {
		t.Errorf("%d suspects, the first %+v; want 20, those of most deaths", len(got), got[0])
	}
}

func TestReport_MayBeUsedFromAnyGoroutine(t *testing.T) {
	r := newReport(t)
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			times(200, func() { try(r, fmt.Sprint(i%3), died); try(r, fmt.Sprint(i%3), nil, answered...); r.Suspects() })
		})
	}
	callers.Wait()
	sum := 0
	for _, s := range r.Suspects() {
		sum += s.Deaths
	}
	if sum != 8*200 {
		t.Errorf("%d deaths, want %d", sum, 8*200)
	}
}

func TestConfig_SaysWhichVariableIsWrong(t *testing.T) {
	for name, cfg := range map[string]poison.Config{
		"DEATHS": {Deaths: 0, Ratio: 0.5, Window: time.Minute}, "RATIO": {Deaths: 1, Ratio: 1.5, Window: time.Minute}, "WINDOW": {Deaths: 1, Ratio: 0.5},
	} {
		_, err := poison.New(cfg, "/a/b", prometheus.NewRegistry())
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want an error that names %s", cfg, err, name)
		}
	}
}

func BenchmarkReport(b *testing.B) {
	r, err := poison.New(standard, recsv1.RecsService_Recommend_FullMethodName, prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		try(r, "P-1", nil, answered...)
	}
}
