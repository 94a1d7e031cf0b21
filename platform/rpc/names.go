package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/resolver"
)

const (
	// lookupPause lies between two lookups of a name: after one that failed, and before one that a lost connection asks for.
	lookupPause   = time.Second
	lookupTimeout = 5 * time.Second
	// lookupEvery lies between two lookups that nothing asks for: a replica that is added must be known before the one that it
	// replaces has left, or the calls in between have nowhere to go.
	lookupEvery = 5 * time.Second
)

// nameBuilder makes the resolver of dns:/// targets. gRPC's own waits up to two minutes after lookups that failed, and 30 s
// before it looks again for an address that is gone, which would keep a healed server away as long. This one looks up
// addresses and nothing else: no SRV records, no service configs.
type nameBuilder struct{}

var _ resolver.Builder = nameBuilder{}

func (nameBuilder) Scheme() string { return "dns" }

// Build starts to watch the target, dns:///host:port, or dns://server:port/host:port to ask that name server.
func (nameBuilder) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	host, port, err := net.SplitHostPort(target.Endpoint())
	if err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("dns target %q: must be host:port", target.Endpoint())
	}
	w := &nameWatch{host: host, port: port, cc: cc, lookup: net.DefaultResolver, again: make(chan struct{}, 1)}
	if server := target.URL.Host; server != "" {
		w.lookup = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server)
		}}
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.loop.Go(func() { w.watch(ctx) })
	return w, nil
}

// nameWatch keeps a channel's addresses up to date until Close.
type nameWatch struct {
	host, port string
	cc         resolver.ClientConn
	lookup     *net.Resolver
	again      chan struct{}
	cancel     context.CancelFunc
	loop       sync.WaitGroup
}

// ResolveNow is the channel's hint that a connection was lost or asked to be renewed.
func (w *nameWatch) ResolveNow(resolver.ResolveNowOptions) {
	select {
	case w.again <- struct{}{}:
	default:
	}
}

// Close ends the watch and waits for it.
func (w *nameWatch) Close() {
	w.cancel()
	w.loop.Wait()
}

func (w *nameWatch) watch(ctx context.Context) {
	for {
		if err := w.resolve(ctx); err != nil {
			w.cc.ReportError(err) // the channel keeps the addresses that it has
		} else {
			select {
			case <-w.again:
			case <-time.After(lookupEvery):
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-time.After(lookupPause):
		case <-ctx.Done():
			return
		}
	}
}

// resolve takes a name without addresses for an error: replicas that the name has lost for a moment are not forgotten.
func (w *nameWatch) resolve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	hosts, err := w.lookup.LookupHost(ctx, w.host)
	if err != nil {
		return fmt.Errorf("look up %s: %w", w.host, err)
	}
	if len(hosts) == 0 {
		return errors.New("look up " + w.host + ": no addresses")
	}
	slices.Sort(hosts)
	state := resolver.State{}
	for _, h := range slices.Compact(hosts) {
		address := resolver.Address{Addr: net.JoinHostPort(h, w.port)}
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{address}})
	}
	return w.cc.UpdateState(state)
}
