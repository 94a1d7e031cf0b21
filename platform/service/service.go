// Package service is what the mains of the gRPC services have in common: settings, log, telemetry, lifecycle, broker, faults,
// database pool and server, put together in the one right order. It knows no service.
package service

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"google.golang.org/grpc"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/fault/dblock"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/mtls"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/telemetry"
)

// Config holds the settings that every service has.
type Config struct {
	Process   lifecycle.Config
	Telemetry telemetry.Config
	Server    rpc.ServerConfig
	TLS       mtls.Config
	Database  postgres.Config
	Broker    broker.Config
	Faults    fault.Config
}

// housekeeping is how many connections of the pool are left to the service's own loops: pollers, purges, metrics.
const housekeeping = 2

// BoundByDatabase returns c for a service whose every call takes a connection: it has no more workers than the pool has
// connections for them, because a worker that waits for a connection is a queue that nobody sees.
func (c Config) BoundByDatabase() Config {
	c.Server.Pool.Size = max(1, min(c.Server.Pool.Size, int(c.Database.MaxConns)-housekeeping))
	return c
}

// Base is a service's process before its own part is added. Listeners are bound and nothing runs yet.
type Base struct {
	Log       *slog.Logger
	Telemetry *telemetry.Telemetry
	Process   *lifecycle.Process
	Server    *rpc.Server
	Pool      *pgxpool.Pool
	TLS       *mtls.Identity // nil: plain text
	Broker    *nats.Conn     // nil without NATS_URL

	announcer *broker.Announcer
	faults    *fault.Injector // nil unless faults are enabled
}

// New puts together the process of the named service, which callers may call. Logs go to out. An error names the variable at fault.
func New(ctx context.Context, name string, cfg Config, callers rpc.Callers, out io.Writer) (*Base, error) {
	log, err := telemetry.NewLogger(out, cfg.Process.LogLevel, cfg.Process.LogFormat, name)
	if err != nil {
		return nil, err
	}
	tel, err := telemetry.New(ctx, cfg.Telemetry, name, log)
	if err != nil {
		return nil, err
	}
	process, err := lifecycle.New(cfg.Process, log, tel.Registry)
	if err != nil {
		return nil, err
	}
	pool, err := postgres.Open(ctx, cfg.Database, postgres.Deps{Name: name, TracerProvider: tel.TracerProvider, MeterProvider: tel.MeterProvider})
	if err != nil {
		return nil, err
	}
	b := &Base{Log: log, Telemetry: tel, Process: process, Pool: pool}
	if b.TLS, err = mtls.Open(cfg.TLS); err != nil {
		return nil, err
	}
	process.Closer("certificates", b.TLS.Close)
	if err := b.join(name, cfg); err != nil {
		return nil, err
	}
	b.Server, err = rpc.NewServer(cfg.Server, rpc.ServerDeps{
		Log: log, Registry: tel.Registry, TracerProvider: tel.TracerProvider, MeterProvider: tel.MeterProvider, Propagator: tel.Propagator,
		MapError: postgres.RPCError, TLS: b.TLS, Callers: callers, Inner: b.inner(),
	})
	if err != nil {
		return nil, err
	}
	process.Server("grpc", b.Server)
	process.Closer("postgres", func(context.Context) error { pool.Close(); return nil })
	process.Closer("telemetry", tel.Shutdown)
	return b, b.readFaults(ctx)
}

// join connects to the broker and has the process announced there.
func (b *Base) join(name string, cfg Config) (err error) {
	if b.Broker, err = broker.Connect(cfg.Broker, name, b.Log); err != nil {
		return err
	}
	b.Process.Closer("broker", func(ctx context.Context) error { return broker.Close(ctx, b.Broker) })
	if b.announcer, err = broker.NewAnnouncer(cfg.Broker, b.Broker, name, b.Log); err != nil {
		return err
	}
	b.Process.Server("announcer", b.announcer)
	if !cfg.Faults.Enabled {
		return nil
	}
	b.faults, err = fault.New(name, cfg.Faults, fault.Deps{
		Conn: b.Broker, Log: b.Log, Registry: b.Telemetry.Registry, Database: dblock.New(b.Pool, cfg.Faults.DBConnections),
	})
	return err
}

// inner are the interceptors next to the handlers.
func (b *Base) inner() []grpc.UnaryServerInterceptor {
	if b.faults == nil {
		return nil
	}
	return []grpc.UnaryServerInterceptor{b.faults.Unary}
}

// readFaults looks before the process serves, and follows what changes from then on. Its error keeps the process from
// starting; the start is announced all the same, or nobody could count it.
func (b *Base) readFaults(ctx context.Context) error {
	if b.faults == nil {
		return nil
	}
	err := b.faults.Read(ctx)
	if errors.Is(err, fault.ErrCrashOnStart) {
		return errors.Join(err, b.announcer.Announce(ctx))
	}
	if err != nil {
		return err
	}
	b.Process.Worker("faults", b.faults.Run)
	return nil
}

// Gauge has a number of the service announced with it, for others to show. It is for before Run.
func (b *Base) Gauge(name string, read func() float64) { b.announcer.Gauge(name, read) }

// Run serves until ctx ends or a part fails.
func (b *Base) Run(ctx context.Context) error { return b.Process.Run(ctx) }
