package monolith_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/watertight/gateway/report"
	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/postgres/pgtest"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/services/monolith"
)

// TestMain also checks that nothing outlives a process: neither its listeners nor the calls in it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shop is a process of the shop inside the test.
type shop struct {
	url, admin string
	grpc       string
	owners     map[string]string // URL of each service's database, as its owner
	client     *http.Client
	stop       func()
	log        *lines
}

// patient are time-outs that a busy machine keeps when nothing is wrong; tests about slowness set their own.
func patient() []string {
	return []string{"CHECKOUT_TIMEOUT=20s", "SEARCH_TIMEOUT=20s", "RECS_TIMEOUT=20s", "HTTP_WRITE_TIMEOUT=30s",
		"CHECKOUT_BREAKER_OPEN=30s", "SEARCH_BREAKER_OPEN=30s", "RECS_BREAKER_OPEN=30s"}
}

// databases makes one for each service.
func databases(t testing.TB) (environ []string, owners map[string]string) {
	t.Helper()
	owners = map[string]string{}
	for _, service := range []string{"CHECKOUT", "INVENTORY", "PAYMENT", "SEARCH", "RECS"} {
		app, owner := pgtest.NewRoles(t)
		environ = append(environ, service+"_DATABASE_URL="+app, service+"_MIGRATE_DATABASE_URL="+owner)
		owners[strings.ToLower(service)] = owner
	}
	return environ, owners
}

// run starts a process and waits until it is ready.
func run(t testing.TB, environ ...string) *shop {
	t.Helper()
	cfg, err := config.Load[monolith.Settings](slices.Concat(
		[]string{"HTTP_ADDR=127.0.0.1:0", "GRPC_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0", "DRAIN_DELAY=0s", "DRAIN_TIMEOUT=10s"}, patient(), environ))
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{log: &lines{}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	m, err := monolith.New(t.Context(), cfg, s.log)
	if err != nil {
		t.Fatal(err)
	}
	s.url, s.grpc, s.admin = "http://"+m.HTTPAddr(), m.GRPCAddr(), "http://"+m.AdminAddr()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		s.client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the process ended with %v", err)
		}
	})
	t.Cleanup(s.stop)
	eventually(t, "ready", func() bool { return s.do(t, http.MethodGet, s.admin+"/readyz", "").status == http.StatusOK })
	return s
}

// open starts the shop of the given design with data in it.
func open(t testing.TB, environ ...string) *shop {
	t.Helper()
	dbs, owners := databases(t)
	s := run(t, append(dbs, environ...)...)
	s.owners = owners
	s.fill(t)
	return s
}

// fill imports ten products P-1 to P-10 at 100 pence each, and baskets that hold all of them.
func (s *shop) fill(t testing.TB) {
	t.Helper()
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	var products []*searchv1.Product
	var prices []*checkoutv1.Price
	var ids []string
	for i := 1; i <= 10; i++ {
		id, name, price := fmt.Sprintf("P-%d", i), fmt.Sprintf("Product number %d", i), &moneyv1.Money{Currency: "GBP", Minor: 100}
		ids = append(ids, id)
		products = append(products, &searchv1.Product{Id: id, Name: name, Description: "plain", Category: "things", Price: price})
		prices = append(prices, &checkoutv1.Price{ProductId: id, Name: name, Price: price})
	}
	var baskets []*recsv1.Basket
	for i := range 5 {
		baskets = append(baskets, &recsv1.Basket{Id: fmt.Sprint(i), ProductIds: ids})
	}
	importAll(t, searchv1.NewSearchServiceClient(conn).ImportProducts, &searchv1.ImportProductsRequest{Products: products})
	importAll(t, checkoutv1.NewCheckoutServiceClient(conn).ImportPrices, &checkoutv1.ImportPricesRequest{Prices: prices})
	importAll(t, recsv1.NewRecsServiceClient(conn).ImportBaskets, &recsv1.ImportBasketsRequest{Baskets: baskets})
}

func importAll[Req, Resp any](t testing.TB, open func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Req, Resp], error), message *Req) {
	t.Helper()
	stream, err := open(t.Context())
	must(t, err)
	must(t, stream.Send(message))
	_, err = stream.CloseAndRecv()
	must(t, err)
}

// answer is a response, read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request; header is name, value, name, value.
func (s *shop) do(t testing.TB, method, url, body string, header ...string) answer {
	t.Helper()
	a, err := s.try(t.Context(), method, url, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return a
}

func (s *shop) try(ctx context.Context, method, url, body string, header ...string) (answer, error) {
	if strings.HasPrefix(url, "/") {
		url = s.url + url
	}
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(read)}, err
}

func (s *shop) get(t testing.TB, path string, header ...string) answer {
	t.Helper()
	return s.do(t, http.MethodGet, path, "", header...)
}

const orderBody = `{"customer_id":"c-1","currency":"GBP","lines":[{"product_id":"P-1","quantity":2}],"expected_total":200,"payment_token":"tok_ok"}`

func (s *shop) order(t testing.TB, key string) answer {
	t.Helper()
	return s.do(t, http.MethodPost, "/api/v1/orders", orderBody, "Idempotency-Key", key)
}

// fault sets a service's fault over HTTP, or clears it when the body is empty.
func (s *shop) fault(t testing.TB, service, body string) {
	t.Helper()
	method := http.MethodPut
	if body == "" {
		method = http.MethodDelete
	}
	if a := s.do(t, method, "/api/v1/faults/"+service, body); a.status >= 300 {
		t.Fatalf("fault of %s: %d %s", service, a.status, a.body)
	}
}

// shopStatus is what /api/v1/status says.
type shopStatus struct{ report.Status }

func (s *shop) status(t testing.TB) shopStatus {
	t.Helper()
	return decode[shopStatus](t, s.get(t, "/api/v1/status"))
}

func (s shopStatus) upstream(t testing.TB, name string) report.Upstream {
	t.Helper()
	i := slices.IndexFunc(s.Upstreams, func(u report.Upstream) bool { return u.Name == name })
	if i < 0 {
		t.Fatalf("no upstream %s in %+v", name, s)
	}
	return s.Upstreams[i]
}

func decode[T any](t testing.TB, a answer) T {
	t.Helper()
	var out T
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		t.Fatalf("body %q: %v", a.body, err)
	}
	return out
}

// brokerFor starts a broker that keeps faults, and returns the variables that lead to it.
func brokerFor(t testing.TB) []string {
	t.Helper()
	return []string{"NATS_URL=" + brokertest.Start(t, fault.Bucket, "instances").URL(), "FAULTS_ENABLED=true"}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lines collects what is logged.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

// Write takes what is logged.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// load reads the settings and returns what is wrong with them.
func load(environ []string) error {
	_, err := config.Load[monolith.Settings](environ)
	return err
}
