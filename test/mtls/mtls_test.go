//go:build unix

// Package mtls holds the tests of the shop whose processes prove to each other who they are. It knows the shop from outside only,
// and has certificates of its own for everybody.
package mtls

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/mtls"
	"example.com/watertight/platform/mtls/authority"
	"example.com/watertight/platform/rpc"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
	"example.com/watertight/test/shop"
)

// rig is a shop each of whose processes has a certificate, and the folder where those lie.
type rig struct {
	*shop.Lazy
	certificates string
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// live is set by run, which can clean up behind it.
var live rig

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "certificates")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	live = rig{certificates: dir}
	live.Lazy = shop.New(live.prepare)
	return live.Main(m)
}

// prepare issues the certificates. lab cannot fill the shop by itself: it has none while it starts it.
func (r rig) prepare(int) (shop.Settings, error) {
	flags := []string{"--no-seed"}
	ca, err := authority.New(time.Hour)
	if err != nil {
		return shop.Settings{}, err
	}
	for _, name := range []string{"gateway", "checkout", "search", "recs", "inventory", "payment", "lab", "stranger"} {
		if err := r.issue(ca, name); err != nil {
			return shop.Settings{}, err
		}
		if name == "lab" || name == "stranger" {
			continue
		}
		cfg := r.files(name)
		for variable, value := range map[string]string{"TLS_CERT_FILE": cfg.CertFile, "TLS_KEY_FILE": cfg.KeyFile, "TLS_CA_FILE": cfg.CAFile} {
			flags = append(flags, "--env", name+"."+variable+"="+value)
		}
	}
	return shop.Settings{Flags: flags}, nil
}

func (r rig) files(name string) mtls.Config {
	dir := filepath.Join(r.certificates, name)
	return mtls.Config{
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), CAFile: filepath.Join(dir, "ca.crt"), Reload: 10 * time.Second,
	}
}

func (r rig) issue(ca *authority.Authority, name string) error {
	pair, err := ca.Issue(name)
	if err != nil {
		return err
	}
	cfg := r.files(name)
	if err := os.MkdirAll(filepath.Dir(cfg.CertFile), 0o700); err != nil {
		return err
	}
	for path, content := range map[string][]byte{cfg.CertFile: pair.Cert, cfg.KeyFile: pair.Key, cfg.CAFile: ca.Certificate()} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// checkout is a client of checkout under the name's identity; without a name it speaks in plain text.
func checkout(t *testing.T, s *shop.Shop, name string) checkoutv1.CheckoutServiceClient {
	t.Helper()
	var identity *mtls.Identity
	if name != "" {
		var err error
		if identity, err = mtls.Open(live.files(name)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { identity.Close(context.Background()) })
	}
	conn, err := rpc.Dial("static:///"+s.Process(t, "checkout").Addresses["grpc"], rpc.ClientDeps{
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: noop.NewMeterProvider(), Propagator: propagation.TraceContext{},
		TLS: identity, Peer: "checkout",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return checkoutv1.NewCheckoutServiceClient(conn)
}

func importPrices(t *testing.T, client checkoutv1.CheckoutServiceClient) error {
	t.Helper()
	stream, err := client.ImportPrices(t.Context())
	if err != nil {
		return err
	}
	price := &checkoutv1.Price{ProductId: "TLS-1", Name: "Sealed Hatch", Price: &moneyv1.Money{Currency: "GBP", Minor: 250}}
	// An error of the send is the end of the stream; its reason comes with the answer.
	_ = stream.Send(&checkoutv1.ImportPricesRequest{Prices: []*checkoutv1.Price{price}})
	_, err = stream.CloseAndRecv()
	return err
}

func TestShop_WithMutualTLS(t *testing.T) {
	s := live.Get(t)
	sales := filepath.Join(t.TempDir(), "sales.csv")
	text := "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n" +
		"536365,TLS-1,SEALED HATCH,6,12/1/2010 8:26,2.50,17850,United Kingdom\n"
	if err := os.WriteFile(sales, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Run("lab's import gets in", func(t *testing.T) {
		cfg := live.files("lab")
		s.Lab(t, "import", sales, "--dir", s.Dir(), "--tls-cert-file", cfg.CertFile, "--tls-key-file", cfg.KeyFile, "--tls-ca-file", cfg.CAFile)
	})
	t.Run("an order goes through all services", func(t *testing.T) {
		order := `{"customer_id":"c-1","currency":"GBP","lines":[{"product_id":"TLS-1","quantity":1}],"expected_total":250,"payment_token":"tok_ok"}`
		placed := s.Do(t, http.MethodPost, "/api/v1/orders", order, "Content-Type", "application/json", "Idempotency-Key", "mtls-1")
		if placed.Status != http.StatusCreated {
			t.Fatalf("got %d %s, want 201", placed.Status, placed.Body)
		}
		shop.Eventually(t, 20*time.Second, "the order is confirmed", func() bool {
			return strings.Contains(s.Get(t, placed.Header.Get("Location")).Body, `"status":"confirmed"`)
		})
	})
	order := &checkoutv1.GetOrderRequest{OrderId: "00000000-0000-7000-8000-000000000000"}
	for name, want := range map[string]codes.Code{
		"gateway": codes.NotFound, "recs": codes.PermissionDenied, "lab": codes.PermissionDenied, "stranger": codes.PermissionDenied, "": codes.Unavailable,
	} {
		t.Run("orders are read by the gateway alone: "+name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := checkout(t, s, name).GetOrder(ctx, order); status.Code(err) != want {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
	for name, want := range map[string]codes.Code{"lab": codes.OK, "gateway": codes.PermissionDenied, "search": codes.PermissionDenied} {
		t.Run("prices are imported by lab alone: "+name, func(t *testing.T) {
			if err := importPrices(t, checkout(t, s, name)); status.Code(err) != want {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}
