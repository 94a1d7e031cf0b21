package trace_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/watertight/lab/trace"
)

const order = "0af7651916cd43dd8448eb211c80319c"

// jaeger answers as Jaeger's query API does: an order of which one event was delivered twice, and the event's sending.
func jaeger(t *testing.T) trace.Jaeger {
	t.Helper()
	const us = 1_800_000_000_000_000
	span := func(in, id, parent, name string, start, took int, tags ...string) string {
		refs := ""
		if parent != "" {
			refs = fmt.Sprintf(`{"refType":"CHILD_OF","traceID":%q,"spanID":%q}`, in, parent)
		}
		return fmt.Sprintf(`{"traceID":%q,"spanID":%q,"operationName":%q,"references":[%s],"startTime":%d,"duration":%d,"tags":[%s],"logs":[],"processID":"p-%s"}`,
			in, id, name, refs, us+start, took, strings.Join(tags, ","), strings.Fields(name)[0])
	}
	tag := func(key, value string) string { return fmt.Sprintf(`{"key":%q,"value":%s}`, key, value) }
	event := []string{tag("span.kind", `"consumer"`), tag("messaging.message.id", `"m-1"`), tag("cloudevents.event_source", `"checkout"`)}
	failed := append(append([]string{}, event...), tag("otel.status_code", `"ERROR"`), tag("otel.status_description", `"delivered again later"`), tag("error", "true"),
		tag("retry.attempt", "1"))
	again := append(append([]string{}, event...), tag("retry.attempt", "2"), tag("event.age_seconds", "0.25"))
	withEvent := strings.Replace(span(order, "04", "02", "process orders.placed", 20_000, 9000, failed...), `"logs":[]`,
		`"logs":[{"timestamp":`+fmt.Sprint(us+29_000)+`,"fields":[{"key":"event","value":"retry scheduled"},{"key":"retry.after_seconds","value":0.057}]}]`, 1)
	processes := `{"p-POST":{"serviceName":"gateway"},"p-checkout.v1":{"serviceName":"checkout"},"p-InsertOrder":{"serviceName":"checkout"},` +
		`"p-process":{"serviceName":"inventory"},"p-send":{"serviceName":"checkout"}}`
	whole := span(order, "01", "b7ad6b7169203331", "POST /api/v1/orders", 0, 15_000, tag("http.response.status_code", "201")) + "," +
		span(order, "02", "01", "checkout.v1 PlaceOrder", 1000, 12_500, tag("bulkhead.queue_wait_seconds", "0.04")) + "," +
		span(order, "03", "02", "InsertOrder", 2000, 1000, tag("db.system.name", `"postgresql"`)) + "," +
		withEvent + "," + span(order, "05", "02", "process orders.placed", 270_000, 4000, again...)
	sending := strings.Replace(span("ff"+order[2:], "06", "", "send orders.placed", 15_500, 2000), `"references":[]`,
		`"references":[{"refType":"FOLLOWS_FROM","traceID":"`+order+`","spanID":"02"}]`, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := ""
		switch {
		case r.URL.Path == "/api/traces/"+order:
			answer = fmt.Sprintf(`{"traceID":%q,"spans":[%s],"processes":%s}`, order, whole, processes)
		case r.URL.Path == "/api/traces" && strings.Contains(r.URL.Query().Get("tags"), `"messaging.message.id":"m-1"`) && r.URL.Query().Get("service") == "checkout":
			answer = fmt.Sprintf(`{"traceID":%q,"spans":[%s],"processes":%s}`, "ff"+order[2:], sending, processes)
		case strings.HasPrefix(r.URL.Path, "/api/traces/"):
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprintf(w, `{"data":[%s]}`, answer)
	}))
	t.Cleanup(s.Close)
	return trace.Jaeger{URL: s.URL + "/", Client: s.Client()}
}

func TestTree_ShowsWhatHungFromWhatAndHowItEnded(t *testing.T) {
	found, err := jaeger(t).Get(t.Context(), order)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := found.Duration.Milliseconds(), int64(274); got != want || len(found.Spans) != 6 {
		t.Errorf("%d ms and %d spans, want %d ms and 6: the sending once, though two deliveries lead to it", got, len(found.Spans), want)
	}
	var out strings.Builder
	if err := found.Tree(&out, false); err != nil {
		t.Fatal(err)
	}
	const want = `
 START ms   TOOK ms  SERVICE    WHAT
      0.0      15.0  gateway    POST /api/v1/orders  201
      1.0      12.5  checkout     checkout.v1 PlaceOrder  queued 40.0 ms  [1 statements, 1.0 ms]
     15.5       2.0  checkout       ~ send orders.placed  (trace fff7651916cd43dd8448eb211c80319c)
     20.0       9.0  inventory      process orders.placed  FAILED: delivered again later
     29.0                             ! retry scheduled retry.after 57.0 ms
    270.0       4.0  inventory      process orders.placed  attempt 2  age 250.0 ms
`
	if _, got, _ := strings.Cut(out.String(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	out.Reset()
	if err := found.Tree(&out, true); err != nil || !strings.Contains(out.String(), "checkout       InsertOrder\n") {
		t.Errorf("with statements (%v) there is no line of InsertOrder in\n%s", err, out.String())
	}
	if got := found.Outcome(); got != "failed" {
		t.Errorf("Outcome() = %q, want failed", got)
	}
}

func TestJaeger_TellsWhatIsNotThereFromWhatIsNoJaeger(t *testing.T) {
	if _, err := jaeger(t).Get(t.Context(), "ff"+order[2:]); !errors.Is(err, trace.ErrNotFound) {
		t.Errorf("a trace that is not there: %v, want ErrNotFound", err)
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer other.Close()
	if _, err := (trace.Jaeger{URL: other.URL, Client: other.Client()}).Get(t.Context(), order); err == nil || !strings.Contains(err.Error(), "not as Jaeger does") {
		t.Errorf("a page that is no Jaeger: %v", err)
	}
}

func TestParseID_TakesAnIDOrATraceparent(t *testing.T) {
	for text, ok := range map[string]bool{
		order: true, strings.ToUpper(order): true, "00-" + order + "-b7ad6b7169203331-01": true,
		"": false, order[1:]: false, order + "0": false, "../" + order[3:]: false, "00-" + order: true,
	} {
		if id, err := trace.ParseID(text); (err == nil) != ok || ok && id != order {
			t.Errorf("ParseID(%q) = %q, %v; want it taken: %v", text, id, err, ok)
		}
	}
}
