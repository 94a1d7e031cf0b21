package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/postgres/pgtest"
	paymentv1 "example.com/watertight/proto/payment/v1"
)

func TestRun_HelpNamesTheVariablesAndTheirDefaults(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, nil, &out); !errors.Is(err, config.ErrHelp) {
		t.Fatal(err)
	}
	for _, want := range []string{"DATABASE_URL", "GRPC_ADDR", "PROVIDER_TIMEOUT", "[3s]", "SANDBOX_SLOW", "RELAY_BATCH", "[200]", "NATS_URL"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("--help lacks %s:\n%s", want, out.String())
		}
	}
}

func TestRun_MistakesAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		args, environ []string
		want          string
	}{
		"no database":     {nil, nil, "DATABASE_URL"},
		"useless setting": {nil, []string{"DATABASE_URL=postgres://x@localhost/x", "PROVIDER_TIMEOUT=0s"}, "PROVIDER_TIMEOUT"},
		"arguments":       {[]string{"serve"}, nil, `"serve"`},
	} {
		err := run(t.Context(), c.args, c.environ, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error that names %s", name, err, c.want)
		}
	}
}

func TestRun_ServesAndEndsCleanly(t *testing.T) {
	app, owner := pgtest.NewRoles(t)
	grpcAddr, adminAddr := freeAddr(t), freeAddr(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var out bytes.Buffer
	go func() {
		ended <- run(ctx, nil, []string{"DATABASE_URL=" + app, "MIGRATE_DATABASE_URL=" + owner, "DRAIN_DELAY=0s",
			"GRPC_ADDR=" + grpcAddr, "ADMIN_ADDR=" + adminAddr}, &out)
	}()
	defer cancel()
	waitReady(t, adminAddr, ended)

	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// Without a broker the service is ready all the same.
	_, err = paymentv1.NewPaymentServiceClient(conn).GetPayment(ctx, &paymentv1.GetPaymentRequest{OrderId: "1cbb4ae2-2e2a-4dd6-a1f1-28e0b58c6d41"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("payment of an unknown order: got %v, want NOT_FOUND", err)
	}

	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("ended with %v\n%s", err, out.String())
		}
	case <-time.After(30 * time.Second):
		t.Fatal("did not end")
	}
}

func waitReady(t *testing.T, admin string, ended <-chan error) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("ended before it was ready: %v", err)
		default:
		}
		resp, err := http.Get("http://" + admin + "/readyz")
		if err != nil {
			continue // not listening yet
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatal("not ready in time")
}

// freeAddr returns an address that was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
