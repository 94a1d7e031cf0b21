// Package stage is where gateways run that are measured: each in a process of its own, in front of the same canned services and of a
// collector of traces, which run in this process together with the clients.
package stage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"example.com/watertight/test/bench/canned"
	"example.com/watertight/test/bench/client"
	"example.com/watertight/test/bench/process"
)

// Aside is the name of the hidden command with which the benchmarks run their own program beside themselves.
const Aside = "aside"

// Connections are as many as a gateway's client has, and as its callers are: enough to keep a gateway from waiting for them.
const Connections = 8

// Stage holds the services, the collector, and a folder for programs and logs.
type Stage struct {
	Services *canned.Services

	services, collector string // addresses
	dir, program        string
	ends                []func() error // in the order of the starts
}

// Open builds the project's gateway and starts the services. Close it when done.
func Open(ctx context.Context) (s *Stage, err error) {
	dir, err := os.MkdirTemp("", "watertight-bench-edge-")
	if err != nil {
		return nil, err
	}
	s = &Stage{Services: canned.New(), dir: dir, ends: []func() error{func() error { return os.RemoveAll(dir) }}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.program, err = build(ctx, dir); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	s.ends = append(s.ends, func() error { stop(); return nil })
	if s.services, err = process.FreeAddr(ctx); err != nil {
		return nil, err
	}
	if err := s.Services.Listen(running, s.services); err != nil {
		return nil, err
	}
	s.collector, err = collect(running)
	return s, err
}

// Close ends everything that runs, the last first.
func (s *Stage) Close() (err error) {
	for _, end := range slices.Backward(s.ends) {
		err = errors.Join(err, end())
	}
	return err
}

// build makes the gateway's program as `make up` does, out of the module that the workspace or go.mod names.
func build(ctx context.Context, dir string) (string, error) {
	folder, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "example.com/watertight/gateway").Output()
	if err != nil {
		return "", fmt.Errorf("find the gateway's module (run bench inside the repository): %w", err)
	}
	program := filepath.Join(dir, "gateway")
	command := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags", "grpcnotrace", "-o", program, "./cmd/gateway")
	command.Dir, command.Env = strings.TrimSpace(string(folder)), append(command.Environ(), "CGO_ENABLED=0")
	if said, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the gateway: %w\n%s", err, said)
	}
	return program, nil
}

// Gateway is one that runs, and a client of it.
type Gateway struct {
	*client.Client
	*process.Process

	Addr  string
	Admin string // address; empty when it has none
}

// Ours starts the project's gateway with its defaults, but for what settings say.
func (s *Stage) Ours(ctx context.Context, name string, settings ...string) (*Gateway, error) {
	admin, err := process.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	target := "static:///" + s.services
	settings = append([]string{
		"ADMIN_ADDR=" + admin, "DRAIN_DELAY=0s", "CHECKOUT_ADDR=" + target, "SEARCH_ADDR=" + target, "RECS_ADDR=" + target,
	}, settings...)
	g, err := s.start(ctx, name, []string{s.program}, settings)
	if err != nil {
		return nil, err
	}
	g.Admin = admin
	return g, nil
}

// Beside starts this program with the command Aside and the kind of process that it is to be.
func (s *Stage) Beside(ctx context.Context, name, kind string, settings ...string) (*Gateway, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return s.start(ctx, name, []string{self, Aside, kind}, append([]string{"SERVICES_ADDR=" + s.services}, settings...))
}

func (s *Stage) start(ctx context.Context, name string, command, settings []string) (*Gateway, error) {
	addr, err := process.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	p, err := process.Start(s.dir, name, command, append(settings, "HTTP_ADDR="+addr)...)
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, p.Stop)
	c := client.New(addr, Connections)
	s.ends = append(s.ends, func() error { c.Close(); return nil })
	return &Gateway{Client: c, Process: p, Addr: addr}, p.Ready(ctx, "http://"+addr+"/api/v1/products/"+canned.ID(0))
}

// Patient are settings that keep a pause of a busy machine from being taken for a service that does not answer.
func Patient() []string {
	return []string{"CHECKOUT_TIMEOUT=4s", "SEARCH_TIMEOUT=4s", "RECS_TIMEOUT=4s"}
}

// Traced are the settings with which a gateway sends every request's spans to the stage's collector.
func (s *Stage) Traced() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + s.collector, "OTEL_TRACES_SAMPLER=parentbased_always_on"}
}

// collect takes whatever it is sent, as a collector of traces would, and looks at none of it, until ctx ends.
func collect(ctx context.Context) (addr string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(nothing{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(nil); err != nil {
			return err
		}
		return stream.SendMsg(nil) // an empty answer says that all was taken
	}))
	context.AfterFunc(ctx, server.Stop)
	go server.Serve(listener) //nolint:errcheck // it ends when it is stopped
	return listener.Addr().String(), nil
}

// nothing is a codec for messages that nobody reads.
type nothing struct{}

func (nothing) Marshal(any) (mem.BufferSlice, error) { return nil, nil }
func (nothing) Unmarshal(mem.BufferSlice, any) error { return nil }
func (nothing) Name() string                         { return "proto" }

// Spent is the processor time that a gateway takes for each of the requests that callers make for so long, one after the other.
func (g *Gateway) Spent(ctx context.Context, length time.Duration, ask func(context.Context) error) (time.Duration, error) {
	before, err := g.CPU()
	if err != nil {
		return 0, err
	}
	answered, err := client.Loop(ctx, Connections, length, ask)
	if err != nil {
		return 0, err
	}
	after, err := g.CPU()
	return (after - before) / time.Duration(max(1, answered)), err
}
