// Package importer brings a catalog into a running shop: products to search, prices to checkout, baskets to recs and
// stock to inventory, all at once. It knows the contracts and no service; what it sends can be sent again at any time with
// the same result, which is also how it recovers.
package importer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/lab/catalog"
	"example.com/watertight/platform/mtls"
)

// A service that restarts is back within a few seconds: five tries wait about three seconds in all.
const (
	maxAttempts  = 5
	firstBackoff = 200 * time.Millisecond
)

// Targets are the gRPC targets of the services.
type Targets struct {
	Search    string
	Checkout  string
	Recs      string
	Inventory string         // empty while the shop has no inventory: it is left out
	TLS       *mtls.Identity // nil speaks in plain text: on this machine, or through a port-forward
}

// Progress says how far one service has come. Done falls back to zero when a stream has to be sent again.
type Progress struct {
	Service string
	Done    int // of its items: products, prices, baskets or counts
	Total   int
}

// Report says what was stored, in the order search, checkout, recs, inventory.
type Report struct {
	Services []Stored `json:"services"`
	// OversizedBaskets were left out because the contract has no room for them.
	OversizedBaskets int `json:"oversized_baskets,omitempty"`
}

// Stored is what one service has taken in.
type Stored struct {
	Service  string `json:"service"`
	Items    string `json:"items"`
	Stored   int64  `json:"stored"`
	Attempts int    `json:"attempts"` // 1 unless the service was unavailable in between
}

// Run sends the catalog to all targets in parallel and waits until each has stored it. A stream that ends in UNAVAILABLE
// is sent again from its start, a few times; any other error, or the end of ctx, ends the whole import. What was stored by
// then stays, and running again completes it. The callback may be nil; it is called from several goroutines.
func Run(ctx context.Context, targets Targets, c catalog.Catalog, progress func(Progress)) (Report, error) {
	if progress == nil {
		progress = func(Progress) {}
	}
	oversized := countOversized(c.Baskets)
	uploads := []upload{
		{"search", "products", targets.Search, len(c.Products), sendProducts(c)},
		{"checkout", "prices", targets.Checkout, len(c.Products), sendPrices(c)},
		{"recs", "baskets", targets.Recs, len(c.Baskets) - oversized, sendBaskets(c)},
	}
	if targets.Inventory != "" {
		uploads = append(uploads, upload{"inventory", "stock counts", targets.Inventory, len(c.Products), sendStock(c)})
	}
	report := Report{Services: make([]Stored, len(uploads)), OversizedBaskets: oversized}
	group, ctx := errgroup.WithContext(ctx)
	for i, u := range uploads {
		group.Go(func() error {
			stored, err := u.run(ctx, targets.TLS, progress)
			if err != nil {
				return fmt.Errorf("import %s to %s at %s: %w", u.items, u.service, u.target, err)
			}
			report.Services[i] = stored
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Report{}, err
	}
	return report, nil
}

// An upload is one service's share of the import.
type upload struct {
	service string
	items   string
	target  string
	total   int
	send    attempt
}

// An attempt sends all items once, calls sent with the number of items in each message, and returns how many the service
// has stored.
type attempt func(ctx context.Context, conn *grpc.ClientConn, sent func(int)) (int64, error)

func (u upload) run(ctx context.Context, identity *mtls.Identity, progress func(Progress)) (Stored, error) {
	if u.total == 0 {
		return Stored{Service: u.service, Items: u.items}, nil
	}
	creds, err := identity.Client()
	if err != nil {
		return Stored{}, err
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(creds)}
	if identity != nil {
		options = append(options, grpc.WithAuthority(u.service)) // an address may be called anything
	}
	conn, err := grpc.NewClient(u.target, options...)
	if err != nil {
		return Stored{}, err
	}
	defer conn.Close()
	for try := 1; ; try++ {
		done := 0
		progress(Progress{u.service, done, u.total})
		stored, err := u.send(ctx, conn, func(n int) {
			done += n
			progress(Progress{u.service, done, u.total})
		})
		switch {
		case err == nil && stored != int64(u.total):
			return Stored{}, fmt.Errorf("it stored %d of the %d that were sent", stored, u.total)
		case err == nil:
			return Stored{u.service, u.items, stored, try}, nil
		case ctx.Err() != nil:
			return Stored{}, context.Cause(ctx)
		case status.Code(err) != codes.Unavailable || try == maxAttempts:
			return Stored{}, err
		}
		if err := pause(ctx, try); err != nil {
			return Stored{}, err
		}
		conn.ResetConnectBackoff()
	}
}

// pause waits before the next attempt: twice as long each time, give or take a quarter so that the services' importers
// do not march in step.
func pause(ctx context.Context, try int) error {
	wait := firstBackoff << (try - 1)
	wait += time.Duration((rand.Float64() - 0.5) / 2 * float64(wait))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
