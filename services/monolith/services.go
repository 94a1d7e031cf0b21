package monolith

import (
	"context"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"example.com/watertight/gateway/shop"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/fault/dblock"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/services/checkout"
	"example.com/watertight/services/inventory"
	"example.com/watertight/services/payment"
	"example.com/watertight/services/payment/sandbox"
	"example.com/watertight/services/recs"
	"example.com/watertight/services/search"
)

// service is a service of the shop, made as it would be for a process of its own.
type service interface {
	Register(r grpc.ServiceRegistrar)
	Start(p *lifecycle.Process)
}

// ground is what a service stands on: its own database, and metrics that tell it from the others of the process.
type ground struct {
	name     string
	pool     *pgxpool.Pool
	database postgres.Config
	registry prometheus.Registerer
}

// callers may call the services over the network: the same as if each was a process of its own.
func callers() rpc.Callers {
	all := rpc.Callers{}
	for _, of := range []rpc.Callers{checkout.Callers(), inventory.Callers(), payment.Callers(), search.Callers(), recs.Callers()} {
		maps.Copy(all, of)
	}
	return all
}

// addServices makes the services that run here and registers each with both channels.
func (m *Monolith) addServices(ctx context.Context) error {
	for _, name := range m.cfg.Roles.Features.services() {
		g, err := m.lay(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s, err := m.service(ctx, g)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.Register(&m.channel.inproc)
		s.Register(m.grpc)
		s.Start(m.process)
	}
	return nil
}

// service makes the service that the ground was laid for.
func (m *Monolith) service(ctx context.Context, g ground) (service, error) {
	switch g.name {
	case shop.Checkout:
		return m.checkout(ctx, g)
	case inventoryName:
		events, err := m.events(ctx, g, inventory.Stream)
		if err != nil {
			return nil, err
		}
		return inventory.New(inventory.Deps{Pool: g.pool, Database: g.database, Events: events, Log: m.log}), nil
	case paymentName:
		return m.payment(ctx, g)
	case shop.Search:
		return search.New(m.cfg.Search, search.Deps{Pool: g.pool, Database: g.database, Log: m.log, Registry: g.registry})
	}
	events, err := m.events(ctx, g, "")
	if err != nil {
		return nil, err
	}
	return recs.New(m.cfg.Recs, recs.Deps{Pool: g.pool, Database: g.database, Events: events, Log: m.log})
}

func (m *Monolith) checkout(ctx context.Context, g ground) (service, error) {
	events, err := m.events(ctx, g, checkout.Stream)
	if err != nil {
		return nil, err
	}
	deps := checkout.Deps{Pool: g.pool, Database: g.database, Events: events, Log: m.log, Registry: g.registry}
	if m.cfg.oneDatabase() {
		deps.Reserve = inventory.Reserve
	}
	return checkout.New(m.cfg.Checkout, deps)
}

func (m *Monolith) payment(ctx context.Context, g ground) (service, error) {
	events, err := m.events(ctx, g, payment.Stream)
	if err != nil {
		return nil, err
	}
	provider, err := sandbox.New(m.cfg.Sandbox, g.pool)
	if err != nil {
		return nil, err
	}
	return payment.New(m.cfg.Payment, payment.Deps{
		Pool: g.pool, Database: g.database, Events: events, Provider: provider, Log: m.log,
		TracerProvider: m.telemetry.TracerProvider, Registry: g.registry,
	})
}

// events is the service's own part in the traffic of events, which goes over the broker here as everywhere.
func (m *Monolith) events(ctx context.Context, g ground, stream string) (*outbox.Outbox, error) {
	return outbox.New(ctx, m.cfg.Outbox, outbox.Deps{
		Service: g.name, Stream: stream, Database: g.database, Conn: m.broker, Log: m.log,
		TracerProvider: m.telemetry.TracerProvider, MeterProvider: m.telemetry.MeterProvider, Registry: g.registry,
		FaultsEnabled: m.cfg.Faults.Enabled,
	})
}

// lay opens the service's database and lets faults reach the service, if they are enabled.
func (m *Monolith) lay(ctx context.Context, name string) (ground, error) {
	g := ground{
		name: name, database: m.cfg.database(name),
		registry: prometheus.WrapRegistererWith(prometheus.Labels{"service": name}, m.telemetry.Registry),
	}
	var err error
	if name == shop.Checkout && m.cfg.oneDatabase() {
		if g.database, err = m.cfg.withStock(g.database); err != nil {
			return g, err
		}
	}
	g.pool, err = postgres.Open(ctx, g.database, postgres.Deps{
		Name: name, TracerProvider: m.telemetry.TracerProvider, MeterProvider: m.telemetry.MeterProvider,
	})
	if err != nil {
		return g, err
	}
	m.process.Closer("postgres of "+name, func(context.Context) error { g.pool.Close(); return nil })
	if !m.cfg.Faults.Enabled {
		return g, nil
	}
	m.faults[name], err = fault.New(name, m.cfg.Faults, fault.Deps{
		Conn: m.broker, Log: m.log, Registry: g.registry, Database: dblock.New(g.pool, m.cfg.Faults.DBConnections),
	})
	return g, err
}
