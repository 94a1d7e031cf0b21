package rpc

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	_ "google.golang.org/grpc/health" // client-side health checking, as the service config asks for it
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"example.com/watertight/platform/mtls"
	"example.com/watertight/platform/shard"
)

// staticScheme is the scheme of targets that list their addresses: static:///10.0.0.1:50051,10.0.0.2:50051.
const staticScheme = "static"

// ClientDeps is what a client connection uses. The telemetry must be set.
type ClientDeps struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Propagator     propagation.TextMapPropagator
	// TLS is the client's identity; nil speaks in plain text.
	TLS *mtls.Identity
	// Peer is the name that the server's certificate must have, whatever the target's addresses are called. With TLS it must be set.
	Peer string
	// Retry lists the methods (/package.Service/Method) that the channel tries again when a server is UNAVAILABLE: only
	// those that are safe to repeat. The retry budget keeps all tries to about 1.1 × the calls while a server fails.
	Retry []string
	// NoRetryBudget takes that budget away, so that the storm can be seen that it prevents.
	NoRetryBudget bool
	// ShardSize, when not 0, sends each customer's calls (shard.WithKey) to a fixed subset of that many servers instead of
	// round robin over all. It needs shard.Register.
	ShardSize int
}

// Dial sets up a connection to target: dns:///host:port, or static:///a:1,b:2 for a fixed list. It connects to every
// address, spreads calls round robin over those whose health says SERVING, reconnects within 3 s, and contacts nobody
// before the first call. Close it when done.
func Dial(target string, deps ClientDeps, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	config, err := serviceConfig(deps)
	if err != nil {
		return nil, err
	}
	creds, err := deps.TLS.Client()
	if err != nil {
		return nil, fmt.Errorf("credentials of the connection to %q: %w", target, err)
	}
	if deps.TLS != nil {
		if deps.Peer == "" {
			return nil, fmt.Errorf("connect to %q: with TLS the peer must have a name", target)
		}
		opts = append(slices.Clip(opts), grpc.WithAuthority(deps.Peer))
	}
	if deps.ShardSize > 0 {
		opts = append(slices.Clip(opts), grpc.WithChainUnaryInterceptor(shard.UnaryClientInterceptor)) // innermost
	}
	opts = append(slices.Clip(opts), grpc.WithChainUnaryInterceptor(countAttempts)) // inside of the caller's own
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithResolvers(staticResolver(target), nameBuilder{}),
		grpc.WithDefaultServiceConfig(config),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelOptions(deps.TracerProvider, deps.MeterProvider, deps.Propagator)...)),
		grpc.WithStatsHandler(attemptHandler{}), // after the one that makes the attempts' spans
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout, PermitWithoutStream: true}),
		// gRPC's own cap of 120 s would keep a healed server away for two minutes. 2 s and the jitter are 2.4 s at most, which
		// leaves time for the rest of healing: the health check, and a guard's probes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		// An idle channel would let go of its connections, and the next call would pay for new ones.
		grpc.WithIdleTimeout(0),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w", target, err)
	}
	return conn, nil
}

func staticResolver(target string) resolver.Builder {
	builder := manual.NewBuilderWithScheme(staticScheme)
	var state resolver.State
	if list, ok := strings.CutPrefix(target, staticScheme+":///"); ok {
		for addr := range strings.SplitSeq(list, ",") {
			state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: strings.TrimSpace(addr)}}})
		}
	}
	builder.InitialState(state)
	return builder
}

type (
	methodName struct {
		Service string `json:"service"`
		Method  string `json:"method"`
	}
	retryPolicy struct {
		MaxAttempts          int      `json:"maxAttempts"`
		InitialBackoff       string   `json:"initialBackoff"`
		MaxBackoff           string   `json:"maxBackoff"`
		BackoffMultiplier    float64  `json:"backoffMultiplier"`
		RetryableStatusCodes []string `json:"retryableStatusCodes"`
	}
	methodConfig struct {
		Name        []methodName `json:"name"`
		RetryPolicy retryPolicy  `json:"retryPolicy"`
	}
	throttling struct {
		MaxTokens  float64 `json:"maxTokens"`
		TokenRatio float64 `json:"tokenRatio"`
	}
	channelConfig struct {
		LoadBalancing []map[string]any  `json:"loadBalancingConfig"`
		HealthCheck   map[string]string `json:"healthCheckConfig"`
		Methods       []methodConfig    `json:"methodConfig,omitempty"`
		Throttling    *throttling       `json:"retryThrottling,omitempty"`
	}
)

// serviceConfig is the channel's gRPC service config. A call that succeeds adds a tenth of a token, a failed try takes
// one, and there are no retries below half of the tokens: the retry budget of gRFC A6.
func serviceConfig(deps ClientDeps) (string, error) {
	config := channelConfig{
		LoadBalancing: []map[string]any{{"round_robin": struct{}{}}},
		HealthCheck:   map[string]string{"serviceName": ""},
	}
	if deps.ShardSize < 0 {
		return "", fmt.Errorf("shard size must not be negative, got %d", deps.ShardSize)
	}
	if deps.ShardSize > 0 {
		config.LoadBalancing = []map[string]any{{shard.Name: shard.Config{Size: deps.ShardSize}}}
	}
	if len(deps.Retry) > 0 {
		policy := retryPolicy{MaxAttempts: 3, InitialBackoff: "0.02s", MaxBackoff: "0.2s", BackoffMultiplier: 2, RetryableStatusCodes: []string{"UNAVAILABLE"}}
		method := methodConfig{RetryPolicy: policy}
		for _, full := range deps.Retry {
			service, name, ok := strings.Cut(strings.TrimPrefix(full, "/"), "/")
			if !ok {
				return "", fmt.Errorf("retry: %q is not /package.Service/Method", full)
			}
			method.Name = append(method.Name, methodName{service, name})
		}
		config.Methods = []methodConfig{method}
		if !deps.NoRetryBudget {
			config.Throttling = &throttling{MaxTokens: 10, TokenRatio: 0.1}
		}
	}
	out, err := json.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("service config: %w", err)
	}
	return string(out), nil
}
