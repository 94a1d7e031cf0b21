package monolith

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/watertight/gateway"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/mtls"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/telemetry"
	"example.com/watertight/services/checkout"
	"example.com/watertight/services/payment"
	"example.com/watertight/services/payment/sandbox"
	"example.com/watertight/services/recs"
	"example.com/watertight/services/search"
)

// Settings are all variables of the process.
type Settings struct {
	Roles     Roles
	Pools     PoolsConfig
	HTTP      gateway.Config
	GRPC      GRPCConfig
	Upstreams gateway.UpstreamsConfig
	Databases Databases
	Broker    broker.Config
	Faults    fault.Config
	Process   gateway.ProcessConfig
	TLS       mtls.Config
	Telemetry telemetry.Config
	Outbox    outbox.Config
	Checkout  checkout.Config
	Payment   payment.Config
	Sandbox   sandbox.Config
	Search    search.Config
	Recs      recs.Config
}

// Roles say which part of the shop the process is.
type Roles struct {
	Features Features `env:"FEATURES" envDefault:"checkout,search,recs" help:"features that run in this process, or none; others are called at X_ADDR"`
}

// Features are the names of features, in the order checkout, search, recs.
type Features []string

// allFeatures are those that a route may have.
func allFeatures() Features { return Features{shop.Checkout, shop.Search, shop.Recs} }

// none is how FEATURES says that there are no features: an empty variable is one that is not set.
const none = "none"

// UnmarshalText reads names with commas, or none.
func (f *Features) UnmarshalText(text []byte) error {
	*f = Features{}
	if string(text) == none {
		return nil
	}
	asked := strings.Split(string(text), ",")
	for i := range asked {
		asked[i] = strings.TrimSpace(asked[i])
		if !slices.Contains(allFeatures(), asked[i]) {
			return fmt.Errorf("%q is no feature; there are %s", asked[i], strings.Join(allFeatures(), ", "))
		}
	}
	for _, name := range allFeatures() {
		if slices.Contains(asked, name) {
			*f = append(*f, name)
		}
	}
	return nil
}

// Has says whether the feature runs in this process.
func (f Features) Has(name string) bool { return slices.Contains(f, name) }

// missing are the features that run in other processes.
func (f Features) missing() []string { return slices.DeleteFunc(allFeatures(), f.Has) }

// The services that have no route of their own, and so are no features: they run where checkout runs, in its compartment.
const (
	inventoryName = "inventory"
	paymentName   = "payment"
)

// services are those that the feature consists of, the one with its name first.
func services(feature string) []string {
	if feature == shop.Checkout {
		return []string{feature, inventoryName, paymentName}
	}
	return []string{feature}
}

// services are all that run in this process.
func (f Features) services() []string {
	var all []string
	for _, name := range f {
		all = append(all, services(name)...)
	}
	return all
}

// process is what the process is called among others.
func (f Features) process() string {
	switch len(f) {
	case 0:
		return "gateway"
	case 1:
		return f[0]
	}
	return "monolith"
}

// The values of POOLS.
const (
	Shared     = "shared"
	PerFeature = "per-feature"
)

// PoolsConfig is how the process's workers are divided.
type PoolsConfig struct {
	Mode  string `env:"POOLS" envDefault:"shared" help:"shared: one pool for all features; per-feature: each has its own"`
	Size  int    `env:"POOL_SIZE" envDefault:"16" help:"most requests worked on at once, in all pools"`
	Queue int    `env:"POOL_QUEUE" envDefault:"32" help:"most requests waiting for a worker, in all pools; 0 turns the queue off"`

	Checkout PoolConfig `envPrefix:"CHECKOUT_"`
	Search   PoolConfig `envPrefix:"SEARCH_"`
	Recs     PoolConfig `envPrefix:"RECS_"`
}

// PoolConfig is a feature's own pool, where each has its own.
type PoolConfig struct {
	Size  *int `env:"POOL_SIZE" help:"workers of this feature alone; empty is its share of POOL_SIZE: 4, 6 and 6 of 16"`
	Queue *int `env:"POOL_QUEUE" help:"places in the queue of this feature alone; empty is its share of POOL_QUEUE"`
}

// Validate checks the limits of every pool there would be.
func (c PoolsConfig) Validate() error {
	own := map[string]PoolConfig{shop.Checkout: c.Checkout, shop.Search: c.Search, shop.Recs: c.Recs}
	switch c.Mode {
	case Shared:
		for _, name := range allFeatures() {
			if own[name] != (PoolConfig{}) {
				return fmt.Errorf("%s_POOL_SIZE, %[1]s_POOL_QUEUE: are for POOLS=%s", strings.ToUpper(name), PerFeature)
			}
		}
		return prefixed("POOL_", bulkhead.Config{Size: c.Size, Queue: c.Queue}.Validate())
	case PerFeature:
		var errs []error
		if c.Size < len(own) {
			errs = append(errs, fmt.Errorf("POOL_SIZE: must be at least %d, one for each feature, got %d", len(own), c.Size))
		}
		if c.Queue < 0 {
			errs = append(errs, fmt.Errorf("POOL_QUEUE: must not be negative, got %d", c.Queue))
		}
		for _, name := range allFeatures() {
			errs = append(errs, prefixed(strings.ToUpper(name)+"_POOL_", c.limits(name).Validate()))
		}
		return errors.Join(errs...)
	}
	return fmt.Errorf("POOLS: must be %s or %s, got %q", Shared, PerFeature, c.Mode)
}

// limits are those of the pool that the feature runs in.
func (c PoolsConfig) limits(feature string) bulkhead.Config {
	if c.Mode == Shared {
		return bulkhead.Config{Size: c.Size, Queue: c.Queue}
	}
	own := map[string]PoolConfig{shop.Checkout: c.Checkout, shop.Search: c.Search, shop.Recs: c.Recs}[feature]
	limits := bulkhead.Config{Size: max(share(feature, c.Size), 1), Queue: share(feature, c.Queue)}
	if own.Size != nil {
		limits.Size = *own.Size
	}
	if own.Queue != nil {
		limits.Queue = *own.Queue
	}
	return limits
}

// share divides a total as 4 : 6 : 6, without losing any of it.
func share(feature string, total int) int {
	checkout := total / 4
	if total >= 3 { // so that each has one
		checkout = max(checkout, 1)
	}
	search := (total - checkout) / 2
	return map[string]int{shop.Checkout: checkout, shop.Search: search, shop.Recs: total - checkout - search}[feature]
}

// Design is the shape of the shop that the process is part of, as /api/v1/status shows it.
func (s Settings) Design() string {
	switch {
	case len(s.Roles.Features.missing()) > 0:
		return "roles"
	case s.Pools.Mode == PerFeature:
		return "pool-per-feature"
	}
	return "shared-pool"
}

// GRPCConfig is the listener for imports, and for other processes that lack a feature.
type GRPCConfig struct {
	Addr             string        `env:"GRPC_ADDR" envDefault:":50051" help:"address of the gRPC server: imports, and features for processes that lack them"`
	MaxStreams       int           `env:"MAX_STREAMS" envDefault:"256" help:"streams open at once, over gRPC and in the process each; they take no slot"`
	MaxConnectionAge time.Duration `env:"MAX_CONNECTION_AGE" envDefault:"20s" help:"age at which clients are told to reconnect, for new replicas' sake"`
}

// Databases are one for each service.
type Databases struct {
	Checkout  Database `envPrefix:"CHECKOUT_"`
	Inventory Database `envPrefix:"INVENTORY_"`
	Payment   Database `envPrefix:"PAYMENT_"`
	Search    Database `envPrefix:"SEARCH_"`
	Recs      Database `envPrefix:"RECS_"`
}

// Database is postgres.Config for a service that may be absent, and whose connections follow from its workers.
type Database struct {
	URL                      string        `env:"DATABASE_URL" help:"postgres://role:password@host:port/database of the service; required where it runs"`
	MigrateURL               string        `env:"MIGRATE_DATABASE_URL" help:"the same database with the role that owns its tables; empty is DATABASE_URL"`
	MaxConns                 int32         `env:"DB_MAX_CONNS" envDefault:"0" help:"connections in the pool; 0 is one for each worker and two more"`
	ConnectTimeout           time.Duration `env:"DB_CONNECT_TIMEOUT" envDefault:"2s" help:"time to open a connection"`
	StatementTimeout         time.Duration `env:"DB_STATEMENT_TIMEOUT" envDefault:"5s" help:"time one statement may run (0 = no limit)"`
	LockTimeout              time.Duration `env:"DB_LOCK_TIMEOUT" envDefault:"2s" help:"time one statement may wait for a lock (0 = no limit)"`
	IdleInTransactionTimeout time.Duration `env:"DB_IDLE_IN_TRANSACTION_TIMEOUT" envDefault:"10s" help:"time a transaction may sit idle (0 = no limit)"`
	MigrateTimeout           time.Duration `env:"DB_MIGRATE_TIMEOUT" envDefault:"5m" help:"time one attempt to migrate may take"`
}

// Validate checks what only the whole tells: the databases of the services that run here.
func (s Settings) Validate() error {
	var errs []error
	for _, service := range s.Roles.Features.services() {
		errs = append(errs, prefixed(strings.ToUpper(service)+"_", s.database(service).Validate()))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return s.apart(s.Roles.Features.services())
}

// prefixed completes the names of variables at the start of an error, or of each of several.
func prefixed(prefix string, err error) error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s%w", prefix, err)
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		errs = append(errs, fmt.Errorf("%s%w", prefix, e))
	}
	return errors.Join(errs...)
}
