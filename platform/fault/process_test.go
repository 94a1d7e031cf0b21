package fault_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/service"
)

// patience bounds every wait for something that is to happen by itself.
const patience = 60 * time.Second

// asService makes this test binary run as the service that the faults are tried on, a process of its own.
const asService = "WATERTIGHT_TEST_AS_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asService) == "" {
		os.Exit(m.Run())
	}
	lifecycle.Main("victim", victim)
}

// victim is a service with the common main of all services.
func victim(ctx context.Context, _, environ []string, out io.Writer) error {
	cfg, err := config.Load[service.Config](environ)
	if err != nil {
		return err
	}
	base, err := service.New(ctx, "victim", cfg, nil, out)
	if err != nil {
		return err
	}
	testpb.RegisterTestServiceServer(base.Server, &answers{base: base})
	fmt.Fprintln(out, "listening", base.Server.Addr(), base.Process.AdminAddr())
	return base.Run(ctx)
}

type answers struct {
	testpb.UnimplementedTestServiceServer
	base *service.Base
}

// UnaryCall answers at once.
func (*answers) UnaryCall(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return &testpb.SimpleResponse{Username: "well"}, nil
}

// EmptyCall asks the database.
func (a *answers) EmptyCall(ctx context.Context, _ *testpb.Empty) (*testpb.Empty, error) {
	if _, err := a.base.Pool.Exec(ctx, "INSERT INTO things DEFAULT VALUES"); err != nil {
		return nil, err
	}
	return &testpb.Empty{}, nil
}

// StreamingOutputCall streams one message.
func (*answers) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	return stream.Send(&testpb.StreamingOutputCallResponse{})
}

// process is a victim, seen from outside.
type process struct {
	testpb.TestServiceClient
	health  healthv1.HealthClient
	admin   string
	began   time.Time
	exited  chan struct{}
	code    int // valid once exited
	mu      sync.Mutex
	printed strings.Builder
	cmd     *exec.Cmd
}

// launch starts a victim and returns at once.
func launch(t *testing.T, env ...string) (p *process, listening <-chan string) {
	t.Helper()
	p = &process{exited: make(chan struct{}), began: time.Now()}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append([]string{asService + "=1", "GRPC_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0", "DRAIN_DELAY=0s", "DRAIN_TIMEOUT=2s",
		"DATABASE_URL=postgres://nobody@127.0.0.1:1/nothing", "INSTANCE_ID=victim", "INSTANCE_HEARTBEAT=200ms", "LOG_FORMAT=text", "POOL_SIZE=4", "POOL_QUEUE=4"}, env...)
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addresses := make(chan string, 1)
	go func() {
		defer close(p.exited)
		defer close(addresses)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.printed, lines.Text())
			p.mu.Unlock()
			if rest, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
				addresses <- rest
			}
		}
		_ = p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("the process printed:\n%s", p.output())
		}
	})
	return p, addresses
}

// run starts a victim and waits until it is ready.
func run(t *testing.T, env ...string) *process {
	t.Helper()
	p, listening := launch(t, env...)
	select {
	case addresses, ok := <-listening:
		if !ok {
			t.Fatalf("the process ended with %d", p.exit(t))
		}
		grpcAddr, admin, _ := strings.Cut(addresses, " ")
		p.admin = "http://" + admin
		p.dial(t, grpcAddr)
	case <-time.After(patience):
		t.Fatal("the process does not listen")
	}
	eventually(t, "ready", func() bool { return p.get("/readyz") == http.StatusOK })
	return p
}

func (p *process) dial(t *testing.T, addr string) {
	t.Helper()
	conn, err := rpc.Dial("static:///"+addr, rpc.ClientDeps{
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(), Propagator: propagation.TraceContext{},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p.TestServiceClient, p.health = testpb.NewTestServiceClient(conn), healthv1.NewHealthClient(conn)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.printed.String()
}

// exit waits for the end of the process and returns its code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
		return p.code
	case <-time.After(patience):
		t.Fatal("the process does not end")
		return 0
	}
}

// alive fails the test when the process has ended.
func (p *process) alive(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
		t.Fatalf("the process ended with %d", p.code)
	default:
	}
}

// get returns the status of a page of the admin listener, 0 for none.
func (p *process) get(path string) int {
	status, _ := p.page(path)
	return status
}

func (p *process) page(path string) (int, string) {
	resp, err := http.Get(p.admin + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(body)
}

// call makes one call within d and says how it went and how long it took.
func (p *process) call(d time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	start := time.Now()
	_, err := p.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.WaitForReady(true))
	return time.Since(start), err
}

// ask is a call for something by name: a field deep in the message.
func (p *process) ask(d time.Duration, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_, err := p.UnaryCall(ctx, &testpb.SimpleRequest{ResponseSize: 7, ResponseStatus: &testpb.EchoStatus{Message: name}}, grpc.WaitForReady(true))
	return err
}

// later makes a call in the background.
func (p *process) later(d time.Duration) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := p.call(d)
		done <- err
	}()
	return done
}

var errStill = errors.New("still under way")

// outcome waits for a call in the background.
func outcome(done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return errStill
	}
}

// eventually waits until what is true.
func eventually(t *testing.T, name string, what func() bool) {
	t.Helper()
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		if what() {
			return
		}
	}
	t.Fatalf("never came true: %s", name)
}
