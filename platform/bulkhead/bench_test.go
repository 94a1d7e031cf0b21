package bulkhead_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go"
	fsbulkhead "github.com/failsafe-go/failsafe-go/bulkhead"
	fstimeout "github.com/failsafe-go/failsafe-go/timeout"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/watertight/platform/bulkhead"
)

// The benchmarks compare with failsafe-go's bulkhead in the same run: go test -run '^$' -bench . -cpu 2 ./bulkhead
// Both take the context of a request: cancellable, with a deadline.

func requestContext(b *testing.B) context.Context {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	b.Cleanup(cancel)
	return ctx
}

func BenchmarkAcquire_Uncontended(b *testing.B) {
	ctx := requestContext(b)
	ours := func(b *testing.B, ctx context.Context, reg prometheus.Registerer) {
		b.Helper()
		pool := newPool(b, bulkhead.Config{Size: 64, Queue: 64}, reg)
		b.ReportAllocs()
		for b.Loop() {
			slot, err := pool.Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			slot.Release()
		}
	}
	peer := func(b *testing.B, ctx context.Context) {
		b.Helper()
		pool := fsbulkhead.New[any](64)
		b.ReportAllocs()
		for b.Loop() {
			if err := pool.AcquirePermitWithMaxWait(ctx, time.Second); err != nil {
				b.Fatal(err)
			}
			pool.ReleasePermit()
		}
	}
	b.Run("background/ours", func(b *testing.B) { ours(b, context.Background(), nil) })
	b.Run("background/failsafe", func(b *testing.B) { peer(b, context.Background()) })
	b.Run("deadline/ours", func(b *testing.B) { ours(b, ctx, nil) })
	b.Run("deadline/ours+metrics", func(b *testing.B) { ours(b, ctx, prometheus.NewRegistry()) })
	b.Run("deadline/failsafe", func(b *testing.B) { peer(b, ctx) })
}

// Every goroutine takes and releases a slot as fast as it can. In "spare" there is always a free slot; in "queueing" there
// are eight times as many goroutines as slots, and whoever has one lets others run before giving it back. failsafe-go's bulkhead alone lets any number of callers wait; only
// behind a second, outer one is its queue bounded as ours is.
func BenchmarkAcquire_Contended(b *testing.B) {
	ctx := requestContext(b)
	const queue = 1024
	for _, load := range []struct {
		name string
		size int
	}{{"spare", 64}, {"queueing", 2}} {
		work := func() {
			if load.size == 2 {
				runtime.Gosched()
			}
		}
		run := func(name string, takeAndRelease func() error) {
			b.Run(load.name+"/"+name, func(b *testing.B) {
				b.SetParallelism(8)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := takeAndRelease(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
		pool := newPool(b, bulkhead.Config{Size: load.size, Queue: queue}, nil)
		run("ours", func() error {
			slot, err := pool.Acquire(ctx)
			work()
			slot.Release()
			return err
		})
		inner := fsbulkhead.New[any](uint(load.size))
		run("failsafe", func() error {
			if err := inner.AcquirePermit(ctx); err != nil {
				return err
			}
			work()
			inner.ReleasePermit()
			return nil
		})
		outer := fsbulkhead.New[any](uint(load.size + queue))
		run("failsafe bounded", func() error {
			if err := outer.AcquirePermitWithMaxWait(ctx, 0); err != nil {
				return err
			}
			defer outer.ReleasePermit()
			if err := inner.AcquirePermit(ctx); err != nil {
				return err
			}
			work()
			inner.ReleasePermit()
			return nil
		})
	}
}

func BenchmarkAcquire_Rejected(b *testing.B) {
	ctx := requestContext(b)
	b.Run("ours", func(b *testing.B) {
		pool := newPool(b, bulkhead.Config{Size: 1}, nil)
		held, err := pool.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		defer held.Release()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := pool.Acquire(ctx); err == nil {
				b.Fatal("a full pool gave a slot")
			}
		}
	})
	b.Run("failsafe", func(b *testing.B) {
		pool := fsbulkhead.New[any](1)
		if !pool.TryAcquirePermit() {
			b.Fatal("an empty pool gave no permit")
		}
		b.ReportAllocs()
		for b.Loop() {
			if pool.AcquirePermitWithMaxWait(ctx, 0) == nil {
				b.Fatal("a full pool gave a permit")
			}
		}
	})
}

func BenchmarkDo(b *testing.B) {
	ctx := requestContext(b)
	var done atomic.Int64
	b.Run("ours", func(b *testing.B) {
		pool := newPool(b, bulkhead.Config{Size: 64, Queue: 64}, nil)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := bulkhead.Do(ctx, pool, time.Second, func(context.Context) (int64, error) { return done.Add(1), nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("failsafe", func(b *testing.B) {
		peer := failsafe.With[int64](
			fsbulkhead.New[int64](128),
			fsbulkhead.NewBuilder[int64](64).WithMaxWaitTime(time.Hour).Build(),
			fstimeout.New[int64](time.Second),
		)
		b.ReportAllocs()
		for b.Loop() {
			res := peer.WithContext(ctx).GetAsyncWithExecution(func(failsafe.Execution[int64]) (int64, error) { return done.Add(1), nil })
			select {
			case <-res.Done():
				if _, err := res.Get(); err != nil {
					b.Fatal(err)
				}
			case <-ctx.Done():
				b.Fatal(ctx.Err())
			}
		}
	})
}
