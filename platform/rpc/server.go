// Package rpc is where gRPC servers and clients are set up, so that both sides agree: keepalive, connection age, message
// limits, health, tracing, validation against the contract, and errors that carry a reason and no internals. It knows no
// service.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/mtls"
	"example.com/watertight/platform/rpc/contract"
)

// Keepalive is agreed between Server and Dial: clients ping an idle connection every pingEvery, servers allow a ping
// every minPing, and a peer that does not answer within pingTimeout is gone.
const (
	pingEvery   = 20 * time.Second
	minPing     = 10 * time.Second
	pingTimeout = 5 * time.Second
	// connectionGrace is how long a stream may outlive its connection's MAX_CONNECTION_AGE.
	connectionGrace = 30 * time.Second
)

// ServerConfig is how a gRPC server serves.
type ServerConfig struct {
	Addr             string          `env:"GRPC_ADDR" envDefault:":50051" help:"address of the gRPC server"`
	Pool             bulkhead.Config `envPrefix:"POOL_"`
	MaxStreams       int             `env:"MAX_STREAMS" envDefault:"256" help:"streams open at once; they take no slot of the pool"`
	MaxConnectionAge time.Duration   `env:"MAX_CONNECTION_AGE" envDefault:"20s" help:"age at which clients are told to reconnect, for new replicas' sake"`
}

// Validate checks the limits that are not the pool's.
func (c ServerConfig) Validate() error {
	var errs []error
	if c.MaxStreams < 1 {
		errs = append(errs, errors.New("MAX_STREAMS: must be at least 1"))
	}
	if c.MaxConnectionAge <= 0 {
		errs = append(errs, errors.New("MAX_CONNECTION_AGE: must be more than 0s"))
	}
	return errors.Join(errs...)
}

// ServerDeps is what a server uses. The log, the registry and the telemetry must be set.
type ServerDeps struct {
	Log            *slog.Logger
	Registry       prometheus.Registerer
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Propagator     propagation.TextMapPropagator
	// MapError, when set, may turn a handler's error into one that carries a status (a lost database into UNAVAILABLE).
	// It returns errors that it does not know as they are.
	MapError func(ctx context.Context, err error) error
	// Unpooled takes no slot for a call: Inner sees to that. It is for a process that keeps pools of its own.
	Unpooled bool
	// TLS is the server's identity; nil serves in plain text, and then nobody's name is known and Callers is not asked.
	TLS *mtls.Identity
	// Callers says who may call what.
	Callers Callers
	// Inner run next to the handler, inside the pool: a fault there holds a worker as real work would.
	Inner       []grpc.UnaryServerInterceptor
	InnerStream []grpc.StreamServerInterceptor
}

// Callers are the names of the processes that may call each method (/package.Service/Method). Nobody may call a method that is not
// listed. Health and reflection are open to every peer with a trusted certificate.
type Callers map[string][]string

// Server is a gRPC server whose unary handlers run in a bulkhead, its worker pool. Health and reflection are outside of
// it; streams have a cap of their own. Health says NOT_SERVING until Ready and from Drain on.
type Server struct {
	*grpc.Server
	listener net.Listener
	health   *health.Server
	pool     *bulkhead.Bulkhead
	contract *contract.Rules
}

var _ lifecycle.Server = (*Server)(nil)

// NewServer binds the address and sets up the server; handlers are registered on it before it serves.
func NewServer(cfg ServerConfig, deps ServerDeps) (*Server, error) {
	var pool *bulkhead.Bulkhead
	if !deps.Unpooled {
		var err error
		if pool, err = bulkhead.New("grpc", cfg.Pool, deps.Registry); err != nil {
			return nil, err
		}
	}
	creds, err := deps.TLS.Server()
	if err != nil {
		return nil, fmt.Errorf("credentials of the gRPC server: %w", err)
	}
	listener, err := lifecycle.Listen("GRPC_ADDR", cfg.Addr)
	if err != nil {
		return nil, err
	}
	chain := newChain(deps, pool, cfg.MaxStreams)
	s := &Server{listener: listener, health: health.NewServer(), pool: pool, contract: &chain.contract}
	s.Server = grpc.NewServer(
		grpc.Creds(creds),
		grpc.StatsHandler(otelgrpc.NewServerHandler(otelOptions(deps.TracerProvider, deps.MeterProvider, deps.Propagator)...)),
		grpc.ChainUnaryInterceptor(append([]grpc.UnaryServerInterceptor{chain.unary}, deps.Inner...)...),
		grpc.ChainStreamInterceptor(append([]grpc.StreamServerInterceptor{chain.stream}, deps.InnerStream...)...),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: cfg.MaxConnectionAge, MaxConnectionAgeGrace: connectionGrace,
			Time: pingEvery, Timeout: pingTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	)
	s.health.Shutdown() // NOT_SERVING for every service until Ready resumes it
	healthv1.RegisterHealthServer(s.Server, s.health)
	reflection.Register(s.Server)
	return s, nil
}

func otelOptions(tracers trace.TracerProvider, meters metric.MeterProvider, propagator propagation.TextMapPropagator) []otelgrpc.Option {
	return []otelgrpc.Option{
		otelgrpc.WithTracerProvider(tracers), otelgrpc.WithMeterProvider(meters), otelgrpc.WithPropagators(propagator),
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool { return !infrastructure(info.FullMethodName) }),
	}
}

// infrastructure says whether a method is health or reflection, which are never pooled, traced or counted.
func infrastructure(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") || strings.HasPrefix(method, "/grpc.reflection.")
}

// Addr is the address the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Pool is the bulkhead that the unary handlers run in; nil when they are Unpooled.
func (s *Server) Pool() *bulkhead.Bulkhead { return s.pool }

// Serve answers calls until Shutdown, also one that came first. It answers none when a registered service's contract has a rule that is
// not understood.
func (s *Server) Serve() error {
	if err := s.learnContracts(); err != nil {
		return errors.Join(err, s.listener.Close())
	}
	if err := s.Server.Serve(s.listener); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// learnContracts reads the rules of all requests, so that one that nobody could keep is found before the first request.
func (s *Server) learnContracts() error {
	for name := range s.GetServiceInfo() {
		if infrastructure("/" + name + "/") {
			continue
		}
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			return fmt.Errorf("contract of %s: %w", name, err)
		}
		service, ok := d.(protoreflect.ServiceDescriptor)
		if !ok {
			return fmt.Errorf("contract of %s: it is no service", name)
		}
		for i := range service.Methods().Len() {
			if err := s.contract.Learn(service.Methods().Get(i).Input()); err != nil {
				return fmt.Errorf("contract of %s: %w", service.Methods().Get(i).FullName(), err)
			}
		}
	}
	return nil
}

// Ready turns health to SERVING, for the server and for each of its services.
func (s *Server) Ready() {
	s.health.Resume()
	for name := range s.GetServiceInfo() {
		s.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
}

// Drain turns health to NOT_SERVING: clients that check it send their next call elsewhere.
func (s *Server) Drain() { s.health.Shutdown() }

// Shutdown waits for the calls in flight until ctx ends, then cuts them off.
func (s *Server) Shutdown(ctx context.Context) error {
	done := make(chan struct{})
	go func() { s.GracefulStop(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		// Stop waits for handlers to return; one that ignores its context must not keep the process.
		go s.Stop()
		return fmt.Errorf("calls still in flight were cut off: %w", ctx.Err())
	}
}
