package fault_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	labfault "example.com/watertight/lab/fault"
	"example.com/watertight/lab/natsserver"
	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/fault"
	recsv1 "example.com/watertight/proto/recs/v1"
)

// patience bounds every wait for something that is to happen by itself.
const patience = 30 * time.Second

// shop is the shop's broker, with the permissions it really has, and the real gateway. Of recs there is only what makes it
// sick.
type shop struct {
	t       *testing.T
	broker  natsserver.Config
	gateway string
}

func newShop(t *testing.T, environ ...string) *shop {
	t.Helper()
	s := &shop{t: t, broker: natsserver.Config{Host: "127.0.0.1", Port: -1, StoreDir: t.TempDir(), Passwords: map[string]string{natsserver.Admin: "admin"}}}
	for _, user := range natsserver.Users() {
		s.broker.Passwords[user] = "secret-of-" + user
	}
	content, err := s.broker.File()
	must(t, err)
	file := filepath.Join(t.TempDir(), "nats.conf")
	must(t, os.WriteFile(file, []byte(content), 0o600))
	options, err := server.ProcessConfigFile(file)
	must(t, err)
	options.NoSigs, options.NoLog = true, true
	nats, err := server.NewServer(options)
	must(t, err)
	nats.Start()
	t.Cleanup(func() { nats.Shutdown(); nats.WaitForShutdown() })
	if !nats.ReadyForConnections(patience) {
		t.Fatal("the broker is not ready")
	}
	s.broker.Port = options.Port
	_, err = natsserver.Declare(t.Context(), s.broker.URL(natsserver.Admin))
	must(t, err)
	s.startGateway(environ)
	return s
}

func (s *shop) startGateway(environ []string) {
	s.t.Helper()
	program := filepath.Join(s.t.TempDir(), "gateway")
	build := exec.Command("go", "build", "-o", program, "./cmd/gateway")
	build.Dir = filepath.Join("..", "..", "gateway")
	if output, err := build.CombinedOutput(); err != nil {
		s.t.Fatalf("build the gateway: %v\n%s", err, output)
	}
	public, admin := freeAddress(s.t), freeAddress(s.t)
	s.gateway = "http://" + public
	cmd := exec.Command(program)
	cmd.Env = append([]string{"HTTP_ADDR=" + public, "ADMIN_ADDR=" + admin, "DRAIN_DELAY=0s", "NATS_URL=" + s.broker.URL("gateway")}, environ...)
	cmd.Stdout, cmd.Stderr = s.t.Output(), s.t.Output()
	must(s.t, cmd.Start())
	s.t.Cleanup(func() {
		must(s.t, cmd.Process.Signal(os.Interrupt))
		must(s.t, cmd.Wait())
	})
	eventually(s.t, "the gateway is ready", func() bool {
		resp, err := http.Get("http://" + admin + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, name string, what func() bool) {
	t.Helper()
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		if what() {
			return
		}
	}
	t.Fatalf("never came true: %s", name)
}

// lab runs `lab fault ARGS` and returns what it prints.
func lab(ctx context.Context, args ...string) (string, error) {
	var commands struct {
		Fault labfault.Command `cmd:""`
	}
	var out bytes.Buffer
	exited := false
	parser, err := kong.New(&commands, kong.Name("lab"), kong.Writers(&out, &out), kong.Exit(func(int) { exited = true }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.BindTo(&out, (*io.Writer)(nil)))
	if err != nil {
		return "", err
	}
	command, err := parser.Parse(append([]string{"fault"}, args...))
	if exited || err != nil {
		return out.String(), err
	}
	err = command.Run()
	return out.String(), err
}

func (s *shop) lab(args ...string) (string, error) {
	return lab(s.t.Context(), append(args, "--gateway", s.gateway)...)
}

// recs runs what makes recs sick and returns what a call of it for a product comes to.
func (s *shop) recs() func(product string) error {
	s.t.Helper()
	cfg := broker.Config{URL: s.broker.URL("recs"), Heartbeat: time.Second}
	log := slog.New(slog.NewTextHandler(s.t.Output(), nil))
	conn, err := broker.Connect(cfg, "recs", log)
	must(s.t, err)
	s.t.Cleanup(conn.Close)
	injector, err := fault.New("recs", fault.Config{StartWait: patience}, fault.Deps{Conn: conn, Log: log, Registry: prometheus.NewRegistry()})
	must(s.t, err)
	must(s.t, injector.Read(s.t.Context()))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- injector.Run(ctx) }()
	announcer, err := broker.NewAnnouncer(cfg, conn, "recs", log)
	must(s.t, err)
	served := make(chan error, 1)
	go func() { served <- announcer.Serve() }()
	announcer.Ready()
	s.t.Cleanup(func() {
		stop()
		must(s.t, errors.Join(<-ended, announcer.Shutdown(context.Background()), <-served))
	})
	return func(product string) error {
		well := func(context.Context, any) (any, error) { return nil, nil }
		_, err := injector.Unary(s.t.Context(), &recsv1.RecommendRequest{ProductId: product}, &grpc.UnaryServerInfo{FullMethod: recsv1.RecsService_Recommend_FullMethodName}, well)
		return err
	}
}

func TestFault_SetReachesTheServiceAndClearHealsIt(t *testing.T) {
	s := newShop(t, "FAULTS_ENABLED=true")
	recs := s.recs()
	out, err := s.lab("set", "recs", "error", "--code", "INTERNAL", "--rate", "1", "--delay", "20ms", "--ttl", "60s", "--match", "product_id=85;12=3A")
	if err != nil || !strings.Contains(out, "recs") || !strings.Contains(out, "product_id=85;12=3A") || !strings.Contains(out, "20ms") {
		t.Fatalf("set: got %v and %q", err, out)
	}
	eventually(t, "recs is sick", func() bool { return status.Code(recs("85;12=3A")) == codes.Internal })
	if err := recs("another"); err != nil {
		t.Errorf("another product: %v", err)
	}

	out, err = s.lab("list", "--output", "json")
	var listed struct{ Faults []map[string]any }
	if err != nil || json.Unmarshal([]byte(out), &listed) != nil {
		t.Fatalf("list: got %v and %q", err, out)
	}
	want := []map[string]any{{"service": "recs", "kind": "error", "code": "INTERNAL", "rate": 1.0, "delay_ms": 20.0, "ttl_s": 60.0, "match": map[string]any{"product_id": "85;12=3A"}}}
	if diff := cmp.Diff(want, listed.Faults, cmpopts.IgnoreMapEntries(func(k string, _ any) bool { return k == "expires_at" })); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if out, err := s.lab("list"); err != nil || !strings.Contains(out, "ENDS IN") || !strings.Contains(out, "INTERNAL") {
		t.Errorf("list: got %v and %q", err, out)
	}

	if out, err := s.lab("clear", "recs"); err != nil || out != "cleared: recs\n" {
		t.Errorf("clear: got %v and %q", err, out)
	}
	eventually(t, "recs is well", func() bool { return recs("85;12=3A") == nil })
	if out, err := s.lab("list"); err != nil || out != "no faults are set\n" {
		t.Errorf("list: got %v and %q", err, out)
	}
	eventually(t, "the status knows who runs", func() bool { return strings.Contains(s.status(), `"recs":true`) })
}

// status is the readiness of the services, in JSON.
func (s *shop) status() string {
	resp, err := http.Get(s.gateway + "/api/v1/status")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var answer struct {
		Services []struct {
			Name  string
			Ready bool
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err.Error()
	}
	ready := map[string]bool{}
	for _, service := range answer.Services {
		ready[service.Name] = service.Ready
	}
	out, err := json.Marshal(ready)
	return fmt.Sprint(string(out), err)
}

func TestFault_ClearAllClearsAll(t *testing.T) {
	s := newShop(t, "FAULTS_ENABLED=true")
	for _, service := range []string{"recs", "payment"} {
		if _, err := s.lab("set", service, "slow"); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := s.lab("clear", "--all", "-o", "json"); err != nil || strings.Join(strings.Fields(out), "") != `{"cleared":["payment","recs"]}` {
		t.Errorf("got %v and %q", err, out)
	}
	if out, err := s.lab("clear", "--all", "-o", "json"); err != nil || strings.Join(strings.Fields(out), "") != `{"cleared":[]}` {
		t.Errorf("a second time: got %v and %q", err, out)
	}
}

func TestFault_FailuresSayWhatTheGatewaySays(t *testing.T) {
	s := newShop(t, "FAULTS_ENABLED=true")
	for want, args := range map[string][]string{
		"kind: must be one of":        {"set", "recs", "sleepy"},
		"there is no such service":    {"set", "shipping", "slow"},
		"no such service; there are":  {"clear", "a/b"},
		"rate: must be between":       {"set", "recs", "slow", "--rate", "2"},
		"match: must name":            {"set", "recs", "poison"},
		"--ttl 1.5s: must be":         {"set", "recs", "slow", "--ttl", "1500ms"},
		"--delay 1µs: must be":        {"set", "recs", "slow", "--delay", "1us"},
		"ttl_s: must be between":      {"set", "recs", "slow", "--ttl", "0s"},
		"name either a service or":    {"clear"},
		"either a service or --all":   {"clear", "recs", "--all"},
		`expected "<service> <kind>"`: {"set"},
	} {
		if out, err := s.lab(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v and %q, want an error with %q", args, err, out, want)
		}
	}
}

func TestFault_ASwitchedOffGatewayIsExplained(t *testing.T) {
	s := newShop(t)
	for _, args := range [][]string{{"set", "recs", "slow"}, {"list"}, {"clear", "recs"}, {"clear", "--all"}} {
		if _, err := s.lab(args...); err == nil || !strings.Contains(err.Error(), "FAULTS_ENABLED") {
			t.Errorf("%v: got %v, want an error that names FAULTS_ENABLED", args, err)
		}
	}
}

func TestFault_NoGateway(t *testing.T) {
	if _, err := lab(t.Context(), "list", "--gateway", "http://"+freeAddress(t)); err == nil || !strings.Contains(err.Error(), "lab up") {
		t.Errorf("got %v, want a hint", err)
	}
	for _, url := range []string{"127.0.0.1:8080", "ftp://x", "http://", ":"} {
		if _, err := lab(t.Context(), "list", "--gateway", url); err == nil || !strings.Contains(err.Error(), "--gateway") {
			t.Errorf("%s: got %v, want an error that names --gateway", url, err)
		}
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	must(t, err)
	defer silent.Close()
	if _, err := lab(t.Context(), "list", "--timeout", "50ms", "--gateway", "http://"+silent.Addr().String()); err == nil || !strings.Contains(err.Error(), "--timeout") {
		t.Errorf("got %v, want an error that names --timeout", err)
	}
}

func TestFault_HelpShowsAnExample(t *testing.T) {
	for _, command := range []string{"set", "list", "clear"} {
		if out, err := lab(t.Context(), command, "--help"); !strings.Contains(out, "lab fault "+command) || !strings.Contains(out, "Examples:") {
			t.Errorf("%s: got %v and %q", command, err, out)
		}
	}
}
