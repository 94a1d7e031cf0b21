package edge

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sync/errgroup"

	"example.com/watertight/test/bench/client"
	"example.com/watertight/test/bench/stage"
)

// profiled takes a CPU profile of a gateway while callers ask it for pages and orders in turn. With a folder it is kept there.
func profiled(ctx context.Context, g *stage.Gateway, length time.Duration, keep string) (*profile.Profile, error) {
	var raw []byte
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		raw, err = fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", g.Admin, max(1, int(length.Seconds()))))
		return err
	})
	group.Go(func() error {
		_, err := client.Loop(ctx, stage.Connections, length, func(ctx context.Context) error {
			if err := g.WholePage(ctx); err != nil {
				return err
			}
			return g.Order(ctx)
		})
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if keep != "" {
		if err := os.WriteFile(filepath.Join(keep, "gateway.pprof"), raw, 0o600); err != nil {
			return nil, fmt.Errorf("BENCH_PROFILES: %w", err)
		}
	}
	return profile.ParseData(raw)
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return body, err
}

// guardShare is the guard's part of a profile, in percent: deadline, breaker, bulkhead, the retry budget, their counts and the guard's
// span, but not the calls that they guard, and not the collection of the garbage that they leave.
func guardShare(p *profile.Profile) float64 {
	var guard, all int64
	for _, sample := range p.Sample {
		spent := sample.Value[len(sample.Value)-1] // nanoseconds
		all += spent
		if guards(sample) {
			guard += spent
		}
	}
	return 100 * float64(guard) / float64(max(1, all))
}

// guards says whether a sample was taken in the guard's own work. From the innermost call outwards, it is the guard's when that
// comes before gRPC, which the guarded calls begin with.
func guards(sample *profile.Sample) bool {
	for _, location := range sample.Location {
		for _, line := range location.Line { // innermost first, where calls were inlined
			switch name := line.Function.Name; {
			case strings.HasPrefix(name, "google.golang.org/grpc.(*retryThrottler)"),
				strings.HasPrefix(name, "example.com/watertight/platform/upstream."),
				strings.HasPrefix(name, "example.com/watertight/platform/bulkhead."):
				return true
			case strings.HasPrefix(name, "google.golang.org/grpc."):
				return false
			}
		}
	}
	return false
}
