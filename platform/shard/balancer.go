package shard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/endpointsharding"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"example.com/watertight/platform/rpcerr"
)

// Name is the load balancing policy's name in a gRPC service config: {"loadBalancingConfig":[{"shuffle_shard":{"size":2}}]}.
const Name = "shuffle_shard"

// Config is the policy's part of the service config.
type Config struct {
	serviceconfig.LoadBalancingConfig `json:"-"`

	// Size is how many replicas a customer's calls may reach, at least 1.
	Size int `json:"size"`
}

// Register makes the policy known to gRPC. A channel knows policies by name only, from a table of the whole process that gRPC
// does not lock: call this first thing in main, before any channel is made (a trace exporter's is one). Channels that ask
// for the policy without it fail to be made, rather than share out calls another way.
func Register() {
	if balancer.Get(Name) == nil {
		balancer.Register(builder{})
	}
}

type builder struct{}

var _ balancer.ConfigParser = builder{}

func (builder) Name() string { return Name }

// ParseConfig reads the policy's part of a service config.
func (builder) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	var cfg Config
	if err := json.Unmarshal(text, &cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	if cfg.Size < 1 {
		return nil, fmt.Errorf("%s: size must be at least 1, got %d", Name, cfg.Size)
	}
	return cfg, nil
}

// Build leaves connections and health to gRPC: a pick_first child for each endpoint, as round_robin has them.
func (builder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	b := &shuffle{ClientConn: cc, turns: new([turnCounters]atomic.Uint32)}
	b.Balancer = endpointsharding.NewBalancer(b, opts, balancer.Get(pickfirst.Name).Build, endpointsharding.Options{})
	return b
}

// turnCounters is how many counters the customers' turns are spread over: one for all would let a customer's calls fall in step
// with another's and meet the same replica each time.
const turnCounters = 256

// shuffle stands between gRPC's channel and its children, and replaces their round robin picker with its own.
type shuffle struct {
	balancer.ClientConn // the channel
	balancer.Balancer   // the children

	size  atomic.Int64 // children may report before, while and after the channel sets it
	turns *[turnCounters]atomic.Uint32
}

// UpdateClientConnState takes the addresses and the policy's config from the channel.
func (b *shuffle) UpdateClientConnState(state balancer.ClientConnState) error {
	cfg, ok := state.BalancerConfig.(Config)
	if !ok {
		return fmt.Errorf("%s: config is a %T: %w", Name, state.BalancerConfig, balancer.ErrBadResolverState)
	}
	b.size.Store(int64(cfg.Size))
	return b.Balancer.UpdateClientConnState(balancer.ClientConnState{
		ResolverState: pickfirst.EnableHealthListener(state.ResolverState), // a replica counts as ready when its health says so
	})
}

// UpdateState hears from the children whenever one of them changes or the addresses do.
func (b *shuffle) UpdateState(state balancer.State) {
	children := endpointsharding.ChildStatesFromPicker(state.Picker)
	if len(children) > 0 {
		state.Picker = newPicker(children, int(b.size.Load()), b.turns)
	}
	b.ClientConn.UpdateState(state)
}

// picker is one state of the channel. The children are all the endpoints that the resolver knows: those that are down keep
// their place in the subsets.
type picker struct {
	children []endpointsharding.ChildState
	ring     rendezvous
	size     int
	turns    *[turnCounters]atomic.Uint32
	errDown  error // a status: it ends also the calls that would wait for ready
}

func newPicker(children []endpointsharding.ChildState, size int, turns *[turnCounters]atomic.Uint32) *picker {
	names := make([]string, len(children))
	for i, child := range children {
		names[i] = endpointName(child.Endpoint)
	}
	return &picker{children: children, ring: newRendezvous(names), size: size, turns: turns,
		errDown: rpcerr.New(codes.Unavailable, rpcerr.ShardDown, "the replicas that serve this customer are down")}
}

// endpointName is the same for the same endpoint, in whatever order its addresses come.
func endpointName(e resolver.Endpoint) string {
	addresses := make([]string, len(e.Addresses))
	for i, a := range e.Addresses {
		addresses[i] = a.Addr
	}
	slices.Sort(addresses)
	return strings.Join(addresses, ",")
}

// Pick takes turns among the ready replicas of the customer's subset. When there is none it fails at once, unless one is being
// connected to: at the start, or after a server has asked for a new connection. One that refuses, or does not answer within
// the connect time-out, is down until it is ready, not connecting.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	key := keyOf(info.Ctx)
	var room, readyRoom [8]int
	subset, ready := p.ring.choose(key, p.size, room[:0]), readyRoom[:0]
	connecting := false
	for _, at := range subset {
		switch p.children[at].State.ConnectivityState {
		case connectivity.Ready:
			ready = append(ready, at)
		case connectivity.Connecting, connectivity.Idle:
			connecting = true
		case connectivity.TransientFailure, connectivity.Shutdown:
		}
	}
	switch {
	case len(ready) > 0:
		turn := p.turns[xxhash.Sum64String(key)%turnCounters].Add(1)
		return p.children[ready[int(turn%uint32(len(ready)))]].State.Picker.Pick(info)
	case connecting:
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	return balancer.PickResult{}, p.errDown
}
