package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/postgres/pgtest"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
)

func TestRun_HelpListsEveryVariable(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, nil, &out); !errors.Is(err, config.ErrHelp) {
		t.Fatal(err)
	}
	for _, name := range []string{"DATABASE_URL", "MIGRATE_DATABASE_URL", "DB_MAX_CONNS", "GRPC_ADDR", "ADMIN_ADDR", "IDEMPOTENCY_RETENTION", "POOL_SIZE", "DRAIN_DELAY", "NATS_URL", "RELAY_MODE", "ORDER_EXPIRY", "GOGC"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("help does not mention %s:\n%s", name, out.String())
		}
	}
}

func TestRun_MistakesNameTheirVariable(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	const database = "DATABASE_URL=postgres://role@localhost/db"
	for want, environ := range map[string][]string{
		"DATABASE_URL":          {"ADMIN_ADDR=127.0.0.1:0"},
		"GRPC_ADDR":             {database, "ADMIN_ADDR=127.0.0.1:0", "GRPC_ADDR=" + taken.Addr().String()},
		"ADMIN_ADDR":            {database, "ADMIN_ADDR=" + taken.Addr().String()},
		"IDEMPOTENCY_RETENTION": {database, "IDEMPOTENCY_RETENTION=soon"},
	} {
		if err := run(t.Context(), nil, environ, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that names %s", err, want)
		}
	}
	if err := run(t.Context(), []string{"serve"}, nil, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "serve") {
		t.Errorf("got %v, want an error that names the argument", err)
	}
}

func TestRun_ServesUntilItIsToldToStop(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	_ = free.Close()
	environ := []string{"DATABASE_URL=" + pgtest.New(t), "ADMIN_ADDR=127.0.0.1:0", "GRPC_ADDR=" + addr, "DRAIN_DELAY=0s", "LOG_FORMAT=json"}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, nil, environ, &bytes.Buffer{}) }()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := checkoutv1.NewCheckoutServiceClient(conn)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err := client.GetOrder(t.Context(), &checkoutv1.GetOrderRequest{OrderId: "00000000-0000-7000-8000-000000000000"})
		if status.Code(err) == codes.NotFound {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %v, want NotFound", err)
		}
	}
	collector := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	if metrics.Read(collector); collector[0].Value.Uint64() != 400 {
		t.Errorf("GOGC is %d, want 400", collector[0].Value.Uint64())
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
}
