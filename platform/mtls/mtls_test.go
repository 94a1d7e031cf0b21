package mtls_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/interop/grpc_testing" // the contract that the greeter is registered under
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/mtls"
	"example.com/watertight/platform/mtls/authority"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
)

const (
	greet = "/grpc.testing.TestService/EmptyCall"
	load  = "/grpc.testing.TestService/UnaryCall"
)

// greeter is a service of two methods that say who called.
type greeter struct{}

func (greeter) call(ctx context.Context, _ any) (any, error) {
	if names, ok := mtls.Peer(ctx); !ok || len(names) == 0 {
		return nil, status.Error(codes.Internal, "the handler does not know its caller")
	}
	return &emptypb.Empty{}, nil
}

func method(full string) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: full[strings.LastIndex(full, "/")+1:], Handler: func(srv any, ctx context.Context, decode func(any) error, around grpc.UnaryServerInterceptor) (any, error) {
		in := &emptypb.Empty{}
		if err := decode(in); err != nil {
			return nil, err
		}
		return around(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: full}, srv.(greeter).call)
	}}
}

// files writes an identity into dir, each file in the place of the one before.
func files(t *testing.T, dir string, by *authority.Authority, trusted []byte, names ...string) mtls.Config {
	t.Helper()
	pair, err := by.Issue(names...)
	if err != nil {
		t.Fatal(err)
	}
	cfg := mtls.Config{
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), CAFile: filepath.Join(dir, "ca.crt"), Reload: 20 * time.Millisecond,
	}
	for path, content := range map[string][]byte{cfg.CertFile: pair.Cert, cfg.KeyFile: pair.Key, cfg.CAFile: trusted} {
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

func newAuthority(t *testing.T) *authority.Authority {
	t.Helper()
	a, err := authority.New(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func open(t *testing.T, cfg mtls.Config) *mtls.Identity {
	t.Helper()
	identity, err := mtls.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { identity.Close(context.Background()) })
	return identity
}

// serve starts a server whose methods only the gateway and lab, one each, may call, and returns its address.
func serve(t *testing.T, identity *mtls.Identity) string {
	t.Helper()
	server, err := rpc.NewServer(rpc.ServerConfig{
		Addr: "127.0.0.1:0", Pool: bulkhead.Config{Size: 4, Queue: 4}, MaxStreams: 1, MaxConnectionAge: time.Hour,
	}, rpc.ServerDeps{
		Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: noop.NewMeterProvider(),
		Propagator: propagation.TraceContext{}, TLS: identity, Callers: rpc.Callers{greet: {"gateway"}, load: {"lab"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "grpc.testing.TestService", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{method(greet), method(load)}}, greeter{})
	server.Ready()
	done := make(chan error, 1)
	go func() { done <- server.Serve() }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return server.Addr()
}

func dial(t *testing.T, addr string, identity *mtls.Identity, peer string) *grpc.ClientConn {
	t.Helper()
	conn, err := rpc.Dial("static:///"+addr, rpc.ClientDeps{
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: noop.NewMeterProvider(), Propagator: propagation.TraceContext{}, TLS: identity, Peer: peer,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func call(t *testing.T, conn *grpc.ClientConn, method string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
}

func TestServer_AnswersOnlyCallersOfTheMethod(t *testing.T) {
	ca := newAuthority(t)
	addr := serve(t, open(t, files(t, t.TempDir(), ca, ca.Certificate(), "checkout")))
	for _, tc := range []struct {
		caller, method string
		want           codes.Code
	}{
		{"gateway", greet, codes.OK},
		{"gateway", load, codes.PermissionDenied},
		{"lab", load, codes.OK},
		{"lab", greet, codes.PermissionDenied},
		{"recs", greet, codes.PermissionDenied},
	} {
		conn := dial(t, addr, open(t, files(t, t.TempDir(), ca, ca.Certificate(), tc.caller)), "checkout")
		err := call(t, conn, tc.method)
		if status.Code(err) != tc.want {
			t.Errorf("%s calls %s: got %v, want %v", tc.caller, tc.method, err, tc.want)
		}
		if tc.want == codes.PermissionDenied && rpcerr.Reason(err) != rpcerr.PermissionDenied {
			t.Errorf("%s calls %s: reason %q", tc.caller, tc.method, rpcerr.Reason(err))
		}
	}
}

func TestServer_RefusesStrangers(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	addr := serve(t, open(t, files(t, t.TempDir(), ca, ca.Certificate(), "checkout")))
	stranger := open(t, files(t, t.TempDir(), other, ca.Certificate(), "gateway"))
	if err := call(t, dial(t, addr, stranger, "checkout"), greet); status.Code(err) != codes.Unavailable {
		t.Errorf("a certificate of another authority: got %v, want UNAVAILABLE", err)
	}
	if err := call(t, dial(t, addr, nil, ""), greet); status.Code(err) != codes.Unavailable {
		t.Errorf("plain text: got %v, want UNAVAILABLE", err)
	}
}

func TestClient_RefusesAServerOfAnotherName(t *testing.T) {
	ca := newAuthority(t)
	addr := serve(t, open(t, files(t, t.TempDir(), ca, ca.Certificate(), "search")))
	gateway := open(t, files(t, t.TempDir(), ca, ca.Certificate(), "gateway"))
	if err := call(t, dial(t, addr, gateway, "checkout"), greet); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want UNAVAILABLE", err)
	}
	if err := call(t, dial(t, addr, gateway, "search"), greet); err != nil {
		t.Errorf("under its own name: %v", err)
	}
}

func TestIdentity_TakesUpNewFilesWithoutARestart(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	serverDir, clientDir := t.TempDir(), t.TempDir()
	addr := serve(t, open(t, files(t, serverDir, before, before.Certificate(), "checkout")))
	client := open(t, files(t, clientDir, before, before.Certificate(), "gateway"))
	if err := call(t, dial(t, addr, client, "checkout"), greet); err != nil {
		t.Fatalf("before: %v", err)
	}
	// As a rotation goes: everybody trusts both authorities, then shows the new one's certificate, then forgets the old one.
	both := append(before.Certificate(), after.Certificate()...)
	for _, step := range []struct {
		by      *authority.Authority
		trusted []byte
	}{{before, both}, {after, both}, {after, after.Certificate()}} {
		files(t, serverDir, step.by, step.trusted, "checkout")
		files(t, clientDir, step.by, step.trusted, "gateway")
		// A call that comes between two readings may fail, as it may in the steps of a rotation done too fast.
		eventually(t, func() error { return call(t, dial(t, addr, client, "checkout"), greet) })
	}
	eventually(t, func() error {
		old := open(t, files(t, t.TempDir(), before, after.Certificate(), "gateway"))
		if err := call(t, dial(t, addr, old, "checkout"), greet); status.Code(err) != codes.Unavailable {
			return status.Errorf(codes.FailedPrecondition, "a certificate of the old authority: got %v, want UNAVAILABLE", err)
		}
		return nil
	})
}

func TestIdentity_KeepsWhatItHasWhenTheNewFilesAreUnusable(t *testing.T) {
	ca := newAuthority(t)
	dir := t.TempDir()
	cfg := files(t, dir, ca, ca.Certificate(), "checkout")
	addr := serve(t, open(t, cfg))
	if err := os.WriteFile(cfg.CertFile, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * cfg.Reload) // nothing to wait for: the point is that nothing changes
	gateway := open(t, files(t, t.TempDir(), ca, ca.Certificate(), "gateway"))
	if err := call(t, dial(t, addr, gateway, "checkout"), greet); err != nil {
		t.Error(err)
	}
}

func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestOpen_NamesTheVariableAtFault(t *testing.T) {
	ca := newAuthority(t)
	good := files(t, t.TempDir(), ca, ca.Certificate(), "checkout")
	missing, noCA, zero, garbled := good, good, good, good
	missing.KeyFile = filepath.Join(t.TempDir(), "nothing")
	noCA.CAFile = ""
	zero.Reload = 0
	garbled.CAFile = good.KeyFile
	for want, cfg := range map[string]mtls.Config{"TLS_KEY_FILE": missing, "TLS_CA_FILE: must": noCA, "TLS_RELOAD": zero, "TLS_CA_FILE: no certificate": garbled} {
		if _, err := mtls.Open(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that says %q", err, want)
		}
	}
}

func TestOpen_WithoutFilesIsPlainText(t *testing.T) {
	identity, err := mtls.Open(mtls.Config{Reload: time.Second})
	if identity != nil || err != nil {
		t.Fatalf("got %v, %v", identity, err)
	}
	creds, err := identity.Client()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := creds.Info().SecurityProtocol, insecure.NewCredentials().Info().SecurityProtocol; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
