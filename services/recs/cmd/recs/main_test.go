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
	"google.golang.org/grpc/credentials/insecure"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/postgres/pgtest"
	recsv1 "example.com/watertight/proto/recs/v1"
)

func TestRun_HelpNamesTheVariablesAndTheirDefaults(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, nil, &out); !errors.Is(err, config.ErrHelp) {
		t.Fatal(err)
	}
	for _, want := range []string{"DATABASE_URL", "GRPC_ADDR", "MIN_SUPPORT", "[3]", "MAX_BASKET", "[100]", "MODEL_POLL", "[1s]", "MODEL_REFRESH", "[1m]"} {
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
		"useless setting": {nil, []string{"DATABASE_URL=postgres://x@localhost/x", "MIN_SUPPORT=0"}, "MIN_SUPPORT"},
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
	client := recsv1.NewRecsServiceClient(conn)
	stream, err := client.ImportBaskets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var baskets []*recsv1.Basket
	for _, id := range []string{"1", "2", "3"} {
		baskets = append(baskets, &recsv1.Basket{Id: id, ProductIds: []string{"A", "B"}})
	}
	if err := stream.Send(&recsv1.ImportBasketsRequest{Baskets: baskets}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	resp, err := client.Recommend(ctx, &recsv1.RecommendRequest{ProductId: "A"})
	if err != nil || len(resp.GetRecommendations()) != 1 || resp.GetRecommendations()[0].GetProductId() != "B" {
		t.Errorf("recommend: got %v, %v, want B", resp, err)
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
