//go:build unix

package accept

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	inventoryv1 "example.com/watertight/proto/inventory/v1"
	"example.com/watertight/test/shop"
)

// edge is one arrow of a trace's picture: a span above, one below, and what the one below says. A linked one is a trace of its
// own with a link to the span above.
type edge struct {
	above, below string // "service name of the span"
	linked       bool
	says         map[string]string // attributes; a value "*" is any
	failed       bool
	mayFail      bool // it is not said whether
	event        string
}

const client, server, producer, consumer = tracepb.Span_SPAN_KIND_CLIENT, tracepb.Span_SPAN_KIND_SERVER, tracepb.Span_SPAN_KIND_PRODUCER, tracepb.Span_SPAN_KIND_CONSUMER

// on is what the spans of an event's way say alike.
func on(subject string, more ...string) map[string]string {
	says := map[string]string{"messaging.system": "nats", "messaging.destination.name": subject, "messaging.message.id": "*", "cloudevents.event_type": "*"}
	for i := 0; i < len(more); i += 2 {
		says[more[i]] = more[i+1]
	}
	return says
}

func sent(subject, by string) map[string]string {
	return on(subject, "messaging.operation.type", "send", "messaging.operation.name", "send", "cloudevents.event_source", by)
}

func processed(subject, by, group string, more ...string) map[string]string {
	return on(subject, append(more, "messaging.operation.type", "process", "messaging.operation.name", "process", "cloudevents.event_source", by,
		"messaging.consumer.group.name", group, "event.age_seconds", "*")...)
}

func answered(method, code string) map[string]string {
	return map[string]string{"rpc.system.name": "grpc", "rpc.method": method, "rpc.response.status_code": code, "server.address": "*"}
}

func statement(database string) map[string]string {
	return map[string]string{"db.system.name": "postgresql", "db.namespace": database, "db.operation.name": "*", "db.query.text": "*"}
}

const placeOrder = "checkout.v1.CheckoutService/PlaceOrder"

// healthyOrder is the whole way of an order from the request to the shop's knowing what was bought together, as one picture.
func healthyOrder() []edge {
	return []edge{
		{above: "", below: "gateway POST /api/v1/orders", says: map[string]string{"http.request.method": "POST", "http.route": "/api/v1/orders",
			"http.response.status_code": "201", "url.path": "/api/v1/orders"}},
		{above: "gateway POST /api/v1/orders", below: "gateway upstream checkout", says: map[string]string{
			"upstream.name": "checkout", "upstream.outcome": "ok", "upstream.breaker": "closed"}},
		{above: "gateway upstream checkout", below: "gateway " + placeOrder, says: answered(placeOrder, "OK")},
		{above: "gateway " + placeOrder, below: "checkout " + placeOrder, says: answered(placeOrder, "OK")},
		{above: "checkout " + placeOrder, below: "checkout batch start"},
		{above: "checkout batch start", below: "checkout InsertOrder", says: statement("checkout")},
		{above: "checkout batch start", below: "checkout AppendEvent", says: statement("checkout")},
		{above: "checkout " + placeOrder, below: "checkout send orders.placed", linked: true, says: sent("orders.placed", "checkout")},
		{above: "checkout " + placeOrder, below: "inventory process orders.placed", says: processed("orders.placed", "checkout", "inventory", "retry.attempt", "1")},
		{above: "inventory process orders.placed", below: "inventory TakeStock", says: statement("inventory")},
		{above: "inventory process orders.placed", below: "inventory send inventory.reserved", linked: true, says: sent("inventory.reserved", "inventory")},
		{above: "inventory process orders.placed", below: "checkout process inventory.reserved", says: processed("inventory.reserved", "inventory", "checkout")},
		{above: "checkout process inventory.reserved", below: "checkout send orders.payment_requested", linked: true, says: sent("orders.payment_requested", "checkout")},
		{above: "checkout process inventory.reserved", below: "payment process orders.payment_requested", says: processed("orders.payment_requested", "checkout", "payment")},
		{above: "payment process orders.payment_requested", below: "payment charge", says: map[string]string{"work.outcome": "charged", "retry.attempt": "1"}},
		{above: "payment charge", below: "payment send payments.charged", linked: true, says: sent("payments.charged", "payment")},
		{above: "payment charge", below: "checkout process payments.charged", says: processed("payments.charged", "payment", "checkout")},
		{above: "checkout process payments.charged", below: "checkout send orders.confirmed", linked: true, says: sent("orders.confirmed", "checkout")},
		{above: "checkout process payments.charged", below: "recs process orders.confirmed", says: processed("orders.confirmed", "checkout", "recs")},
	}
}

// degradedPage is a product's page while recs hangs: it does without, and says which call failed and why.
func degradedPage() []edge {
	const recommend, products = "recs.v1.RecsService/Recommend", "search.v1.SearchService/GetProducts"
	return []edge{
		{above: "", below: "gateway GET /api/v1/products/{id}", says: map[string]string{"http.response.status_code": "200", "upstream.name": "recs", "upstream.outcome": "degraded"}},
		{above: "gateway GET /api/v1/products/{id}", below: "gateway upstream search", says: map[string]string{"upstream.outcome": "ok"}},
		{above: "gateway upstream search", below: "gateway " + products, says: answered(products, "OK")},
		{above: "gateway " + products, below: "search " + products, says: answered(products, "OK")},
		{above: "gateway GET /api/v1/products/{id}", below: "gateway upstream recs", failed: true,
			says: map[string]string{"upstream.outcome": "timed_out", "upstream.breaker": "*", "error.type": "timed_out"}},
		{above: "gateway upstream recs", below: "gateway " + recommend, failed: true, says: answered(recommend, "DEADLINE_EXCEEDED")},
		// The deadline and the gateway's cancellation reach recs at about the same time, and only one of them counts as its failure.
		{above: "gateway " + recommend, below: "recs " + recommend, mayFail: true, says: map[string]string{"rpc.method": recommend, "rpc.response.status_code": "*"}},
	}
}

// openPage is the same a little later: the breaker is open, and nobody waits for recs any more.
func openPage() []edge {
	return []edge{
		{above: "", below: "gateway GET /api/v1/products/{id}", says: map[string]string{"upstream.outcome": "degraded"}},
		{above: "gateway GET /api/v1/products/{id}", below: "gateway upstream recs", failed: true,
			says: map[string]string{"upstream.outcome": "rejected_open", "upstream.breaker": "open", "error.type": "rejected_open"}},
	}
}

// retriedEvent is an order whose payment's event finds checkout's tables locked, and is delivered again.
func retriedEvent() []edge {
	return []edge{
		{above: "payment process orders.payment_requested", below: "payment charge", says: map[string]string{"work.outcome": "charged"}},
		{above: "payment charge", below: "checkout process payments.charged", failed: true, event: "retry scheduled",
			says: processed("payments.charged", "payment", "checkout", "retry.attempt", "1")},
		{above: "payment charge", below: "checkout process payments.charged", says: processed("payments.charged", "payment", "checkout", "retry.attempt", "*")},
		{above: "checkout process payments.charged", below: "recs process orders.confirmed", says: processed("orders.confirmed", "checkout", "recs")},
	}
}

// retriedCharge is an order whose payment provider fails twice.
func retriedCharge() []edge {
	const below = "payment charge"
	above := "payment process orders.payment_requested"
	return []edge{
		{above: above, below: below, failed: true, event: "retry scheduled", says: map[string]string{"retry.attempt": "1", "work.outcome": "unknown"}},
		{above: above, below: below, failed: true, event: "retry scheduled", says: map[string]string{"retry.attempt": "2", "work.outcome": "unknown"}},
		{above: above, below: below, says: map[string]string{"retry.attempt": "3", "work.outcome": "charged"}},
		{above: below, below: "checkout process payments.charged"},
	}
}

// picture waits for a trace to have every edge of the table, and shows what it has when it does not.
func picture(t *testing.T, trace string, table []edge) {
	t.Helper()
	var missing []string
	deadline := time.Now().Add(30 * time.Second)
	for {
		missing = nil
		for _, e := range table {
			if why := lacking(trace, e); why != "" {
				missing = append(missing, fmt.Sprintf("%s → %s: %s", e.above, e.below, why))
			}
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("trace %s lacks\n  %s\nand has\n  %s", trace, strings.Join(missing, "\n  "), strings.Join(edges(trace), "\n  "))
		}
		<-time.After(100 * time.Millisecond)
	}
}

// lacking says what of an edge a trace does not have.
func lacking(trace string, e edge) string {
	spans := live.traces.of(trace)
	all := spans
	if e.linked {
		all = live.traces.linkedTo(trace)
	}
	why := "no such span"
	for _, s := range all {
		if s.service+" "+s.name != e.below {
			continue
		}
		if above := titles(spans)[aboveOf(s, e.linked, trace)]; above != e.above {
			why = "it hangs from " + above
			continue
		}
		if why = wrong(s, e); why == "" {
			return ""
		}
	}
	return why
}

// titles are "service name" by the spans' ids; the caller's own span is "".
func titles(spans []span) map[string]string {
	out := map[string]string{}
	for _, s := range spans {
		out[s.id] = s.service + " " + s.name
	}
	return out
}

func aboveOf(s span, linked bool, trace string) string {
	if !linked {
		return s.parent
	}
	for _, l := range s.links {
		if l.trace == trace {
			return l.id
		}
	}
	return ""
}

func wrong(s span, e edge) string {
	if s.failed != e.failed && !e.mayFail {
		return fmt.Sprintf("failed: %v, want %v", s.failed, e.failed)
	}
	if e.event != "" && !slices.Contains(s.events, e.event) {
		return fmt.Sprintf("events %q, want %q", s.events, e.event)
	}
	for _, key := range slices.Sorted(maps.Keys(e.says)) {
		got, there := s.attributes[key]
		if want := e.says[key]; !there || want != "*" && got != want {
			return fmt.Sprintf("%s = %q, want %q", key, got, want)
		}
	}
	want := map[string]tracepb.Span_SpanKind{"send": producer, "process": consumer}
	if first, _, _ := strings.Cut(s.name, " "); want[first] != 0 && s.kind != want[first] {
		return fmt.Sprintf("kind %v, want %v", s.kind, want[first])
	}
	if s.attributes["rpc.method"] != "" && s.kind != client && s.kind != server {
		return fmt.Sprintf("kind %v", s.kind)
	}
	return ""
}

func edges(trace string) []string {
	spans := live.traces.of(trace)
	names := titles(spans)
	var out []string
	for _, s := range spans {
		out = append(out, fmt.Sprintf("%s → %s %s", names[s.parent], s.service, s.name))
	}
	for _, s := range live.traces.linkedTo(trace) {
		out = append(out, fmt.Sprintf("%s ~ %s %s", names[aboveOf(s, true, trace)], s.service, s.name))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// newTrace is a trace id, and the header that begins the trace.
func newTrace() (id, traceparent string) {
	id = hexID(16)
	return id, "00-" + id + "-" + hexID(8) + "-01"
}

func TestTraces_AnOrderIsOnePictureFromTheRequestToItsEnd(t *testing.T) {
	s := live.Get(t)
	trace, traceparent := newTrace()
	place(t, s, newKey(), wish(someone(), inStock(t, s), "1"), "Traceparent", traceparent).Into(t, http.StatusCreated, &order{})
	picture(t, trace, healthyOrder())
}

func TestTraces_ADegradedPageShowsTheFailedCallAndWhy(t *testing.T) {
	s := live.Get(t)
	mended(t, s)
	page := "/api/v1/products/" + somethings(t, s, 1)[0].ID
	sick(t, s, "recs", `{"kind":"slow","delay_ms":2000,"ttl_s":60}`)
	var trace, traceparent string
	shop.Eventually(t, 10*time.Second, "recs is slow", func() bool {
		trace, traceparent = newTrace()
		return s.Get(t, page, "Traceparent", traceparent).Header.Get("Watertight-Degraded") == "recs"
	})
	picture(t, trace, degradedPage())
	shop.Eventually(t, 10*time.Second, "the breaker is open", func() bool {
		trace, traceparent = newTrace()
		return s.Get(t, page, "Traceparent", traceparent).Took < 100*time.Millisecond
	})
	picture(t, trace, openPage())
}

func TestTraces_ARetriedEventIsSeenWithEachDelivery(t *testing.T) {
	s := live.Get(t)
	mended(t, s)
	trace, traceparent := newTrace()
	var placed order
	body := strings.Replace(wish(someone(), inStock(t, s), "1"), "tok_ok", "tok_slow", 1) // charged after 1.5 s
	place(t, s, newKey(), body, "Traceparent", traceparent).Into(t, http.StatusCreated, &placed)
	shop.Eventually(t, 10*time.Second, "the order awaits its payment", func() bool {
		return strings.Contains(s.Get(t, "/api/v1/orders/"+placed.ID).Body, "awaiting_payment")
	})
	sick(t, s, "checkout", `{"kind":"db-lock","ttl_s":5}`)
	shop.Eventually(t, 4*time.Second, "checkout's tables are locked", func() bool {
		return s.Get(t, "/api/v1/orders/"+placed.ID).Status != http.StatusOK
	})
	picture(t, trace, retriedEvent())
}

func TestTraces_ARetriedChargeIsSeenWithEachAttempt(t *testing.T) {
	s := live.Get(t)
	trace, traceparent := newTrace()
	body := strings.Replace(wish(someone(), inStock(t, s), "1"), "tok_ok", "tok_flaky", 1) // fails twice
	place(t, s, newKey(), body, "Traceparent", traceparent).Into(t, http.StatusCreated, &order{})
	picture(t, trace, retriedCharge())
}

// inStock is a product of which there is enough, whatever other tests have ordered of it.
func inStock(t *testing.T, s *shop.Shop) string {
	t.Helper()
	id := somethings(t, s, 1)[0].ID
	stockUp(t, s, id, 1000)
	return id
}

// stockUp has that many pieces of a product on hand.
func stockUp(t *testing.T, s *shop.Shop, id string, pieces int64) {
	t.Helper()
	stream, err := inventoryv1.NewInventoryServiceClient(dial(t, s, "inventory")).ImportStock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&inventoryv1.ImportStockRequest{Counts: []*inventoryv1.StockCount{{ProductId: id, Available: pieces}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
}

// sick sets a fault, and ends it with the test.
func sick(t *testing.T, s *shop.Shop, service, fault string) {
	t.Helper()
	path := "/api/v1/faults/" + service
	t.Cleanup(func() { s.Do(t, http.MethodDelete, path, "") })
	if a := s.Do(t, http.MethodPut, path, fault, "Content-Type", "application/json"); a.Status/100 != 2 {
		t.Fatalf("PUT %s: %d %s", path, a.Status, a.Body)
	}
}

// What is said on a span is OpenTelemetry's word for it, or one of ours that docs/traces.md explains.
func TestTraces_EveryAttributeIsAConventionOrDeclared(t *testing.T) {
	s := live.Get(t)
	trace, traceparent := newTrace()
	place(t, s, newKey(), wish(someone(), inStock(t, s), "1"), "Traceparent", traceparent)
	picture(t, trace, healthyOrder()[:2])
	docs, err := os.ReadFile(filepath.Join(s.Root, "docs", "traces.md"))
	if err != nil {
		t.Fatal(err)
	}
	// The namespaces of the semantic conventions that the shop uses; pgx is otelpgx's own, and x-client of the Go client is not sent.
	convention := regexp.MustCompile(`^(http|url|user_agent|client|server|network|rpc|db|messaging|cloudevents|error|exception|user|pgx)\.`)
	for key, where := range live.traces.attributes() {
		if !convention.MatchString(key) && !strings.Contains(string(docs), "`"+key+"`") {
			t.Errorf("the attribute %s of the span %q is neither a convention's nor in docs/traces.md", key, where)
		}
	}
	for _, name := range live.traces.spanNames() {
		if len(name) > 80 || regexp.MustCompile(`[0-9a-f]{16}|[?=']`).MatchString(name) {
			t.Errorf("a span is called %q", name)
		}
	}
}
