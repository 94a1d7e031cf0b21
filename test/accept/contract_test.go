//go:build unix

package accept

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/watertight/test/shape"
	"example.com/watertight/test/shop"
)

// The forms of DESIGN §12, keys sorted.
const (
	productShape        = `{category:string,description:string,id:string,name:string,price:{currency:string,minor:integer}}`
	recommendationShape = `{category:string,description:string,id:string,name:string,price:{currency:string,minor:integer},score:number}`
	orderShape          = `{created_at:string,currency:string,customer_id:string,id:string,lines:[{line_total:integer,name:string,product_id:string,quantity:integer,` +
		`unit_price:integer}],reason:string,status:string,total:integer,updated_at:string}`
	eventShape = `{at:string,order_id:string,reason:string,status:string}`
)

func wantShape(t *testing.T, what, document, want string) {
	t.Helper()
	got, err := shape.Of(document)
	if err != nil || got != want {
		t.Errorf("%s: %v\ngot  %s\nwant %s", what, err, got, want)
	}
}

func TestProducts_AreListedSearchedAndPaged(t *testing.T) {
	s := live.Get(t)
	var list productList
	a := s.Get(t, "/api/v1/products")
	a.Into(t, http.StatusOK, &list)
	wantShape(t, "products", a.Body, `{next_page_token:string,products:[`+productShape+`]}`)
	if len(list.Products) != 20 {
		t.Errorf("%d products without page_size, want 20", len(list.Products))
	}

	seen, categories, token := map[string]bool{}, map[string]bool{}, ""
	for {
		var page productList
		s.Get(t, "/api/v1/products?page_size=100&page_token="+token).Into(t, http.StatusOK, &page)
		for _, p := range page.Products {
			if seen[p.ID] {
				t.Errorf("%s is on two pages", p.ID)
			}
			seen[p.ID], categories[p.Category] = true, true
			if p.Price.Currency != "GBP" || p.Price.Minor <= 0 || p.Name == "" {
				t.Errorf("odd product %+v", p)
			}
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if len(seen) < 300 || len(categories) < 12 {
		t.Errorf("the shop was seeded with %d products in %d categories, want 300 in 12", len(seen), len(categories))
	}

	s.Get(t, "/api/v1/products?category=Kitchen&page_size=100").Into(t, http.StatusOK, &list)
	for _, p := range list.Products {
		if p.Category != "Kitchen" {
			t.Errorf("%s is in %s, want Kitchen", p.ID, p.Category)
		}
	}
	first := somethings(t, s, 1)[0]
	for _, q := range []string{first.ID, strings.ToLower(first.ID), first.Name} { // exact id first, whatever the case; a full name
		s.Get(t, "/api/v1/products?q="+strings.ReplaceAll(q, " ", "+")).Into(t, http.StatusOK, &list)
		if len(list.Products) == 0 || list.Products[0].ID != first.ID {
			t.Errorf("q=%s does not find %s first", q, first.ID)
		}
	}
	for _, q := range []string{"lant", "lantren"} { // while typing; one slip
		s.Get(t, "/api/v1/products?q="+q).Into(t, http.StatusOK, &list)
		if len(list.Products) == 0 || !strings.Contains(strings.ToLower(list.Products[0].Name), "lantern") {
			t.Errorf("q=%s does not find a lantern: %+v", q, list.Products)
		}
	}
	s.Get(t, "/api/v1/products?page_token=forged").WantProblem(t, http.StatusBadRequest, "invalid_argument")
	s.Get(t, "/api/v1/products?page_size=101").WantProblem(t, http.StatusBadRequest, "invalid_argument")
}

func TestProduct_ComesWithWhatIsBoughtTogether(t *testing.T) {
	s := live.Get(t)
	first := somethings(t, s, 1)[0]
	a := s.Get(t, "/api/v1/products/"+first.ID)
	var page productPage
	a.Into(t, http.StatusOK, &page)
	wantShape(t, "product", a.Body, `{degraded:[],product:`+productShape+`,recommendations:[`+recommendationShape+`]}`)
	if page.Product.Name != first.Name || len(page.Recommendations) == 0 {
		t.Errorf("got %+v, want %s and recommendations", page, first.Name)
	}
	for i, r := range page.Recommendations {
		if r.ID == first.ID || r.Score <= 0 || r.Score > 1 || (i > 0 && r.Score > page.Recommendations[i-1].Score) {
			t.Errorf("recommendation %d: %+v after %+v", i, r, page.Recommendations[max(i-1, 0)])
		}
	}
	if a.Header.Get("Watertight-Degraded") != "" {
		t.Errorf("Watertight-Degraded: %s on a whole page", a.Header.Get("Watertight-Degraded"))
	}
	s.Get(t, "/api/v1/products/no-such-product").WantProblem(t, http.StatusNotFound, "not_found")
}

func TestRecommendations_KeepToTheLimit(t *testing.T) {
	s := live.Get(t)
	first := somethings(t, s, 1)[0]
	for path, most := range map[string]int{"?product_id=" + first.ID: 8, "?product_id=" + first.ID + "&limit=2": 2, "?limit=3": 3, "?product_id=unknown&limit=50": 50} {
		a := s.Get(t, "/api/v1/recommendations"+path)
		var page productPage
		a.Into(t, http.StatusOK, &page)
		wantShape(t, path, a.Body, `{degraded:[],recommendations:[`+recommendationShape+`]}`)
		if n := len(page.Recommendations); n == 0 || n > most {
			t.Errorf("%s: %d recommendations, want 1 to %d", path, n, most)
		}
	}
	s.Get(t, "/api/v1/recommendations?limit=51").WantProblem(t, http.StatusBadRequest, "invalid_argument")
}

func TestOrder_IsPlacedOnceUnderItsKey(t *testing.T) {
	s := live.Get(t)
	items, customer, key := somethings(t, s, 2), someone(), newKey()
	total := 2*items[0].Price.Minor + 3*items[1].Price.Minor
	body := wish(customer, items[0].ID, "2", items[1].ID, "3")
	body = strings.Replace(body, `"payment_token"`, fmt.Sprintf(`"expected_total":%d,"payment_token"`, total), 1)

	a := place(t, s, key, body)
	var o order
	a.Into(t, http.StatusCreated, &o)
	wantShape(t, "order", a.Body, orderShape)
	if o.Status != "pending" || o.CustomerID != customer || o.Currency != "GBP" || o.Total != total || len(o.Lines) != 2 ||
		o.Lines[0].Name != items[0].Name || o.Lines[0].UnitPrice != items[0].Price.Minor || o.Lines[0].LineTotal != 2*items[0].Price.Minor {
		t.Errorf("got %+v", o)
	}
	if got := a.Header.Get("Location"); got != "/api/v1/orders/"+o.ID {
		t.Errorf("Location %q, want that of %s", got, o.ID)
	}
	if a.Header.Get("Idempotency-Replayed") != "" {
		t.Error("the first answer says that it is a replay")
	}

	// The same content in another notation is the same order.
	for _, again := range []string{body, strings.ReplaceAll(body, ",", ", \n")} {
		replay := place(t, s, key, again)
		var same order
		replay.Into(t, http.StatusCreated, &same)
		if same.ID != o.ID || replay.Header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("again: order %s, Idempotency-Replayed %q, want %s and true", same.ID, replay.Header.Get("Idempotency-Replayed"), o.ID)
		}
	}
	place(t, s, key, strings.Replace(body, `"quantity":2`, `"quantity":1`, 1)).WantProblem(t, http.StatusUnprocessableEntity, "idempotency_key_reused")
	s.Do(t, "POST", "/api/v1/orders", body).WantProblem(t, http.StatusBadRequest, "idempotency_key_missing")

	read := s.Get(t, "/api/v1/orders/"+o.ID)
	var same order
	read.Into(t, http.StatusOK, &same)
	wantShape(t, "order read", read.Body, orderShape)
	if same.ID != o.ID || same.Total != o.Total {
		t.Errorf("read %+v, want %+v", same, o)
	}
	var times struct {
		CreatedAt time.Time `json:"created_at"`
		UpdatedAt time.Time `json:"updated_at"`
	}
	if err := json.Unmarshal([]byte(read.Body), &times); err != nil || times.CreatedAt.IsZero() || times.UpdatedAt.Before(times.CreatedAt) {
		t.Errorf("times %+v (%v), want RFC 3339", times, err)
	}
	s.Get(t, "/api/v1/orders/00000000-0000-4000-8000-000000000000").WantProblem(t, http.StatusNotFound, "not_found")
}

func TestOrder_IsRefusedWithItsReason(t *testing.T) {
	s := live.Get(t)
	item := somethings(t, s, 1)[0]
	body := wish(someone(), item.ID, "2")

	other := strings.Replace(body, `"payment_token"`, `"expected_total":1,"payment_token"`, 1)
	p := place(t, s, newKey(), other).WantProblem(t, http.StatusConflict, "price_changed")
	if want := fmt.Sprint(2 * item.Price.Minor); p.Metadata["total"] != want {
		t.Errorf("price_changed names the total %q, want %s", p.Metadata["total"], want)
	}
	p = place(t, s, newKey(), strings.Replace(body, item.ID, "no-such-product", 1)).WantProblem(t, http.StatusNotFound, "not_found")
	if p.Metadata["product_id"] != "no-such-product" {
		t.Errorf("the unknown product is not named: %+v", p)
	}
	place(t, s, newKey(), strings.Replace(body, "GBP", "EUR", 1)).WantProblem(t, http.StatusBadRequest, "invalid_argument")
	s.Do(t, "PUT", "/api/v1/orders", body).WantProblem(t, http.StatusMethodNotAllowed, "method_not_allowed")
}

func TestEvents_TellTheStatusesInOrder(t *testing.T) {
	s := live.Get(t)
	// No other test orders this product, so that there are pieces of it.
	o := mustPlace(t, s, newKey(), wish(someone(), somethings(t, s, 20)[18].ID, "1"))
	path := "/api/v1/orders/" + o.ID + "/events"

	first := readEvents(t, s, path, "", 1)[0]
	wantShape(t, "event", first.data, eventShape)
	if first.id != "1" || !strings.Contains(first.data, `"status":"pending"`) {
		t.Errorf("the first event is %+v, want pending with id 1", first)
	}
	s.Get(t, path, "Last-Event-ID", "x").WantProblem(t, http.StatusBadRequest, "invalid_argument")
	s.Get(t, "/api/v1/orders/00000000-0000-4000-8000-000000000000/events").WantProblem(t, http.StatusNotFound, "not_found")
	if !s.HasSaga(t) {
		t.Log("no inventory and payment here: orders stay pending")
		return
	}
	// All of them: the stream ends by itself after a final one.
	all := readEvents(t, s, path, "", 0)
	var statuses []string
	for i, e := range all {
		var event struct {
			Status string `json:"status"`
		}
		if err := json.Unmarshal([]byte(e.data), &event); err != nil || e.id != fmt.Sprint(i+1) {
			t.Errorf("event %d: %+v (%v)", i, e, err)
		}
		statuses = append(statuses, event.Status)
	}
	if got := strings.Join(statuses, " "); got != "pending awaiting_payment confirmed" {
		t.Errorf("the order went %s", got)
	}
	if rest := readEvents(t, s, path, "1", 0); len(rest) != len(all)-1 || rest[0].id != "2" {
		t.Errorf("after event 1: %+v", rest)
	}
	if a := s.Get(t, path, "Last-Event-ID", all[len(all)-1].id); a.Status != http.StatusNoContent {
		t.Errorf("after the last event: %d, want 204", a.Status)
	}
}

type event struct{ id, data string }

// readEvents reads n events, or with 0 all of them until the stream ends.
func readEvents(t *testing.T, s *shop.Shop, path, after string, n int) []event {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	resp, err := (&http.Client{Timeout: 30 * time.Second}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("events: %d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	var events []event
	var now event
	lines := bufio.NewScanner(resp.Body)
	for (n == 0 || len(events) < n) && lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case field == "id":
			now.id = value
		case field == "data":
			now.data = value
		case field == "" && now.data != "":
			events = append(events, now)
			now = event{}
		}
	}
	if len(events) < max(n, 1) {
		t.Fatalf("the stream ended after %d events (%v)", len(events), lines.Err())
	}
	return events
}

func TestStatus_TellsHowTheShopIs(t *testing.T) {
	s := live.Get(t)
	a := s.Get(t, "/api/v1/status")
	var status struct {
		Design    string
		Version   string
		Upstreams []struct {
			Name string
		}
		Services []struct {
			Name  string
			Ready bool
		}
	}
	a.Into(t, http.StatusOK, &status)
	if status.Design != "split" || status.Version == "" {
		t.Errorf("design %q, version %q", status.Design, status.Version)
	}
	var names []string
	for _, u := range status.Upstreams {
		names = append(names, u.Name)
	}
	if got := strings.Join(names, " "); got != "checkout search recs" {
		t.Errorf("upstreams %s", got)
	}
	var document map[string]json.RawMessage
	if err := json.Unmarshal([]byte(a.Body), &document); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"version", "design", "upstreams", "orders", "services", "faults"} {
		if _, ok := document[key]; !ok {
			t.Errorf("the status has no %s: %s", key, a.Body)
		}
	}
	for part, want := range map[string]string{
		"services": `[{name:string,ready:boolean,restarts:integer}]`, "faults": `[]`,
	} {
		wantShape(t, part, string(document[part]), want)
	}
	upstreams, err := shape.Of(string(document["upstreams"]))
	if err != nil || !strings.HasPrefix(upstreams, "[{breaker:string,in_flight:integer,limits:{") ||
		!strings.HasSuffix(upstreams, ",name:string,outcomes:{cancelled:integer,degraded:integer,failed:integer,ok:integer,rejected_full:integer,"+
			"rejected_open:integer,timed_out:integer},queued:integer}]") {
		t.Errorf("upstreams: %s (%v)", upstreams, err)
	}
	for _, service := range status.Services {
		if !service.Ready {
			t.Errorf("%s is not ready", service.Name)
		}
	}
	if len(status.Services) == 0 {
		t.Error("no service is known")
	}
	orders, err := shape.Of(string(document["orders"]))
	// Both are numbers, of which JSON may show whole ones without a point; nobody may have told the age yet.
	if err != nil || !regexp.MustCompile(`^{oldest_pending_seconds:(null|integer|number),per_second:(integer|number)}$`).MatchString(orders) {
		t.Errorf("orders: %s (%v)", orders, err)
	}
}

func TestFaults_AreForThisSiteOnlyAndCostOnlyRecs(t *testing.T) {
	s := live.Get(t)
	const path = "/api/v1/faults/recs"
	item := somethings(t, s, 1)[0]
	fault := `{"kind":"error","rate":1,"ttl_s":60}`
	s.Do(t, "PUT", path, fault, "Content-Type", "application/json", "Origin", "http://elsewhere.example", "Sec-Fetch-Site", "cross-site").
		WantProblem(t, http.StatusForbidden, "cross_origin")
	t.Cleanup(func() { s.Do(t, "DELETE", path, "") })
	if a := s.Do(t, "PUT", path, fault, "Content-Type", "application/json"); a.Status/100 != 2 {
		t.Fatalf("PUT: %d %s", a.Status, a.Body)
	}
	degraded := func() bool {
		a := s.Get(t, "/api/v1/products/"+item.ID)
		var page productPage
		a.Into(t, http.StatusOK, &page)
		says := a.Header.Get("Watertight-Degraded") == "recs"
		if says != (len(page.Degraded) == 1 && len(page.Recommendations) == 0) {
			t.Errorf("header and body disagree: %v %s", a.Header, a.Body)
		}
		return says
	}
	shop.Eventually(t, 10*time.Second, "the page comes without recommendations", degraded)
	if a := s.Get(t, "/api/v1/faults"); !strings.Contains(a.Body, `"service":"recs"`) {
		t.Errorf("faults: %s", a.Body)
	}
	mustPlace(t, s, newKey(), wish(someone(), item.ID, "1"))
	if a := s.Do(t, "DELETE", path, ""); a.Status/100 != 2 {
		t.Errorf("DELETE: %d %s", a.Status, a.Body)
	}
	// The breaker may have opened meanwhile.
	shop.Eventually(t, 30*time.Second, "the recommendations are back", func() bool { return !degraded() })
}

func TestAnswers_AreProblemsAndOpenToNoOtherSite(t *testing.T) {
	s := live.Get(t)
	a := s.Get(t, "/api/v1/nothing", "Origin", "http://elsewhere.example")
	a.WantProblem(t, http.StatusNotFound, "not_found")
	wantShape(t, "problem", a.Body, `{code:string,detail:string,instance:string,request_id:string,status:integer,title:string,trace_id:string,type:string}`)
	for _, path := range []string{"/api/v1/products", "/api/v1/status", "/"} {
		for _, a := range []shop.Answer{s.Get(t, path, "Origin", "http://elsewhere.example"), s.Do(t, "OPTIONS", path, "", "Origin", "http://elsewhere.example", "Access-Control-Request-Method", "POST")} {
			for header := range a.Header {
				if strings.HasPrefix(header, "Access-Control-") {
					t.Errorf("%s lets other sites in: %s: %s", path, header, a.Header.Get(header))
				}
			}
			if a.Header.Get("X-Content-Type-Options") != "nosniff" || a.Header.Get("Content-Security-Policy") == "" || a.Header.Get("X-Request-ID") == "" {
				t.Errorf("%s: headers %v", path, a.Header)
			}
		}
	}
}

func TestAdmin_EachProcessTellsHowItIs(t *testing.T) {
	s := live.Get(t)
	services := s.Services(t)
	for _, name := range []string{"gateway", "checkout", "search", "recs"} {
		if _, ok := services[name]; !ok {
			t.Errorf("%s does not run", name)
		}
	}
	for name, p := range services {
		for _, path := range []string{"/livez", "/readyz", "/metrics"} {
			if a := s.Get(t, "http://"+p.Addresses["admin"]+path); a.Status != http.StatusOK {
				t.Errorf("%s%s: %d %s", name, path, a.Status, a.Body)
			}
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/debug/pprof/"} {
		if a := s.Get(t, path); a.Status != http.StatusNotFound {
			t.Errorf("the public address answers %s with %d", path, a.Status)
		}
	}
}
