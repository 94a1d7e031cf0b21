package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"example.com/watertight/lab/check"
	"example.com/watertight/lab/result"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/platform/fault"
)

func TestWatch_CountsOnlyWhatHappensWhileItLooks(t *testing.T) {
	s, _ := newShop(t, &fakeGateway{}, pod("recs", "recs-a", 3, crashLoop), pod("checkout", "checkout-a", 0, ""))
	w, err := newWatch(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	now := w.start
	look := func(pods ...*corev1.Pod) {
		now = now.Add(time.Second)
		var list []corev1.Pod
		for _, p := range pods {
			list = append(list, *p)
		}
		w.look(list, now)
	}
	look(pod("recs", "recs-a", 3, crashLoop), pod("checkout", "checkout-a", 0, ""))
	if w.restarted("recs") != 0 || w.shows("recs", crashLoop) {
		t.Errorf("what was before counts: %v, %v", w.restarts, w.reasons)
	}
	look(pod("recs", "recs-a", 4, ""), pod("checkout", "checkout-a", 0, ""))
	look(pod("recs", "recs-a", 5, crashLoop), pod("checkout", "checkout-a", 0, ""))
	look(pod("recs", "recs-b", 1, ""), pod("checkout", "checkout-a", 0, "")) // a new pod counts from its beginning
	look(pod("checkout", "checkout-a", 0, ""))
	var c result.Cell
	w.finish(&c, w.start)
	if diff := cmp.Diff(map[string]int{"recs": 3}, c.Restarts); diff != "" {
		t.Errorf("restarts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]string{"recs": {crashLoop}}, c.Reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	if len(c.Outages) != 2 || c.Outages[0].Process != "recs" || c.Outages[0].Length != 1 {
		t.Errorf("outages: got %+v, want two of recs, the first of a second", c.Outages)
	}
}

func TestSicken_SetsTheFaultEachTimeAndEndsIt(t *testing.T) {
	gateway := &fakeGateway{}
	s, _ := newShop(t, gateway, deployment("recs"), pod("recs", "recs-a", 4, crashLoop))
	row := scenario.Scenario{Fault: scenario.Fault{
		Kind: fault.Slow, On: []string{"recs"}, Delay: time.Second, Share: 1, For: time.Millisecond, Pause: time.Millisecond, Times: 2,
	}}
	p := &play{Run: &Run{Shop: s}, scenario: &row, found: found{}}
	if err := p.act(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"PUT recs slow", "DELETE recs", "PUT recs slow", "DELETE recs"}, gateway.calls); diff != "" {
		t.Errorf("the switch (-want +got):\n%s", diff)
	}
	if len(p.windows) != 2 {
		t.Errorf("got %d windows, want 2", len(p.windows))
	}
	if left, err := s.podsOf(t.Context(), "recs"); err != nil || len(left) != 0 {
		t.Errorf("the pod that waited for its next start: got %d pods, %v, want it deleted", len(left), err)
	}
}

func TestSicken_EndsTheFaultWhenTheRunIsInterrupted(t *testing.T) {
	gateway := &fakeGateway{}
	s, _ := newShop(t, gateway, deployment("recs"))
	ctx, cancel := context.WithCancel(t.Context())
	row := scenario.Scenario{Fault: scenario.Fault{Kind: fault.Crash, On: []string{"recs"}, Share: 1, For: time.Hour}}
	p := &play{Run: &Run{Shop: s}, scenario: &row}
	over := make(chan error, 1)
	go func() { over <- p.act(ctx) }()
	for set := false; !set; time.Sleep(time.Millisecond) {
		gateway.mu.Lock()
		set = len(gateway.calls) > 0
		gateway.mu.Unlock()
	}
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	if diff := cmp.Diff([]string{"PUT recs crash", "DELETE recs"}, gateway.calls); diff != "" {
		t.Errorf("the switch (-want +got):\n%s", diff)
	}
}

func TestEvict_FailsWhenTheSecondEvictionIsGranted(t *testing.T) {
	d := deployment("recs")
	two := int32(2)
	d.Spec.Replicas, d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas = &two, 2, 2, 2
	for _, refused := range []bool{false, true} {
		s, client := newShop(t, &fakeGateway{}, d.DeepCopy(), pod("recs", "recs-a", 0, ""), pod("recs", "recs-b", 0, ""))
		asked := 0
		client.PrependReactor("create", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
			eviction, ok := action.(k8stesting.CreateAction).GetObject().(*policyv1.Eviction)
			if !ok {
				return false, nil, nil
			}
			if asked++; asked == 2 && refused {
				return true, nil, apierrors.NewTooManyRequests("the budget", 1)
			}
			return true, nil, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), namespace, eviction.Name)
		})
		f := found{}
		if err := s.evict(t.Context(), []string{"recs"}, f); err != nil {
			t.Fatal(err)
		}
		if got := f[scenario.Refused]; got.Met != refused {
			t.Errorf("refused %v: got %+v", refused, got)
		}
	}
}

func TestReleaseBroken_IsTakenBack(t *testing.T) {
	s, client := newShop(t, &fakeGateway{}, deployment("recs"), pod("recs", "recs-old", 0, ""))
	broken := 0
	client.PrependReactor("update", "deployments", func(k8stesting.Action) (bool, runtime.Object, error) {
		broken++
		if broken == 1 { // the controller's part
			return false, nil, client.Tracker().Add(pod("recs", "recs-new", 1, crashLoop))
		}
		return false, nil, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), namespace, "recs-new")
	})
	f := found{}
	if err := s.releaseBroken(t.Context(), newEdits(s), []string{"recs"}, time.Millisecond, f); err != nil {
		t.Fatal(err)
	}
	if got := f[scenario.Halted]; !got.Met || got.Got != "1 old pods serve, 1 new one fails" {
		t.Errorf("got %+v", got)
	}
	d, err := client.AppsV1().Deployments(namespace).Get(t.Context(), "recs", metav1.GetOptions{})
	if err != nil || len(d.Spec.Template.Spec.Containers[0].Env) != 0 || broken != 2 {
		t.Errorf("after %d changes the release is %+v, %v, want it as before", broken, d, err)
	}
}

func TestScale_IsUndoneWhenTheRunIsInterrupted(t *testing.T) {
	d := deployment("recs")
	s, client := newShop(t, &fakeGateway{}, d)
	ctx, cancel := context.WithCancel(t.Context())
	client.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) { cancel(); return false, nil, nil })
	if err := s.grow(ctx, []string{"recs"}, found{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	after, err := client.AppsV1().Deployments(namespace).Get(t.Context(), "recs", metav1.GetOptions{})
	if err != nil || *after.Spec.Replicas != 1 {
		t.Errorf("replicas: got %v, %v, want 1 as before", after.Spec.Replicas, err)
	}
}

func TestShare_JudgesTheLastWindowOnly(t *testing.T) {
	steady := func(perLook ...float64) (looks []map[string]float64) {
		for i := range 40 {
			counts := map[string]float64{}
			for pod, n := range perLook {
				// All calls went to the first until the others came.
				extra := 0.0
				if pod == 0 {
					extra = 100_000
				}
				counts[string(rune('a'+pod))] = extra + n*float64(i)
			}
			looks = append(looks, counts)
		}
		return looks
	}
	for _, c := range []struct {
		name string
		rate []float64
		want bool
	}{
		{"even", []float64{10, 10, 10}, true},
		{"just fair", []float64{35, 8, 7.7}, true},
		{"one gets nothing", []float64{20, 20, 0}, false},
		{"one is missing", []float64{20, 20}, false},
		{"hardly any calls", []float64{1, 1, 1}, false},
	} {
		if text, got := share(steady(c.rate...), 3); got != c.want {
			t.Errorf("%s: got %v (%s), want %v", c.name, got, text, c.want)
		}
	}
}

func TestServed_CountsTheShopsCallsAndNoProbes(t *testing.T) {
	page := `# HELP rpc_server_call_duration_seconds x
rpc_server_call_duration_seconds_count{rpc_method="recs.v1.RecsService/Recommend",rpc_response_status_code="OK"} 40
rpc_server_call_duration_seconds_count{rpc_method="recs.v1.RecsService/Recommend",rpc_response_status_code="INTERNAL"} 2
rpc_server_call_duration_seconds_count{rpc_method="grpc.health.v1.Health/Check"} 900
rpc_server_call_duration_seconds_sum{rpc_method="recs.v1.RecsService/Recommend"} 7
`
	if got := served([]byte(page)); got != 42 {
		t.Errorf("got %v calls, want 42", got)
	}
}

func TestReadTraffic_TakesIdsAndResultApart(t *testing.T) {
	log := "id-1\nid-2\n{\n  \"measured_s\": 3.5,\n  \"operations\": []\n}\n"
	for at := range len(log) + 1 { // the two outputs mix as they like
		measured, acknowledged, err := readTraffic([]byte(log[:at] + goodbye + log[at:]))
		if err != nil || string(acknowledged) != "id-1\nid-2\n" || measured.Measured != 3.5 {
			t.Fatalf("goodbye at %d: got %v, %q, %v", at, measured.Measured, acknowledged, err)
		}
	}
	if _, _, err := readTraffic([]byte("id-1\nlab: no route to host\n")); err == nil || !strings.Contains(err.Error(), "no route to host") {
		t.Errorf("no result: got %v", err)
	}
}

func TestDatabases_AreWhereTheServicesHaveThem(t *testing.T) {
	secret := func(variable, name string) corev1.EnvVar {
		return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: variable,
		}}}
	}
	split, _ := newShop(t, &fakeGateway{}, deployment("checkout", secret("DATABASE_URL", "checkout")),
		deployment("inventory", secret("DATABASE_URL", "inventory")), deployment("payment", secret("DATABASE_URL", "elsewhere")), deployment("recs", secret("DATABASE_URL", "recs")))
	monolith, _ := newShop(t, &fakeGateway{}, deployment("monolith", secret("CHECKOUT_DATABASE_URL", "monolith"),
		secret("INVENTORY_DATABASE_URL", "monolith"), secret("PAYMENT_DATABASE_URL", "monolith")))
	for s, want := range map[*Shop][]string{split: {"checkout", "inventory", "elsewhere"}, monolith: {"monolith", "monolith", "monolith"}} {
		env, err := s.databases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range env {
			got = append(got, e.ValueFrom.SecretKeyRef.Name)
		}
		if !slices.Equal(got, want) || env[0].Name != "CHECKOUT_DATABASE_URL" {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	none, _ := newShop(t, &fakeGateway{}, deployment("checkout"))
	if _, err := none.databases(t.Context()); err == nil {
		t.Error("a shop without databases: no error")
	}
}

func TestBegin_SaysWhatIsMissing(t *testing.T) {
	empty, _ := newShop(t, &fakeGateway{})
	if _, err := Begin(t.Context(), empty, Options{}); err == nil || !strings.Contains(err.Error(), "no shop in the namespace shop") {
		t.Errorf("no shop: got %v", err)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "import-1", Namespace: namespace, Labels: map[string]string{partLabel: labPart}}}
	job.Spec.Template.Spec.Containers = []corev1.Container{{Image: "watertight/lab:1"}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "gateway", Namespace: namespace}}
	service.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 8080}}
	jobless, _ := newShop(t, &fakeGateway{}, service)
	if _, err := Begin(t.Context(), jobless, Options{}); err == nil || !strings.Contains(err.Error(), "--image") {
		t.Errorf("no import job: got %v", err)
	}
	s, _ := newShop(t, &fakeGateway{}, job, service)
	r, err := Begin(t.Context(), s, Options{})
	if err != nil || r.Design() != "split" || r.image != "watertight/lab:1" {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestWhole_NeedsRecommendationsAndOrders(t *testing.T) {
	gateway := &fakeGateway{}
	s, _ := newShop(t, gateway)
	p, err := s.anyProduct(t.Context())
	if err != nil || p.ID != "A-1" {
		t.Fatalf("got %+v, %v", p, err)
	}
	if err := s.whole(t.Context(), p); err != nil {
		t.Error(err)
	}
	gateway.degraded = true
	if err := s.whole(t.Context(), p); err == nil || !strings.Contains(err.Error(), "without recs") {
		t.Errorf("a degraded answer: got %v", err)
	}
}

// judged judges signals by a cell, as it is after a run.
func judged(design string, row scenario.Scenario, c *result.Cell, change func(*play)) []result.Finding {
	w := &watch{restarts: c.Restarts, reasons: map[string]map[string]bool{}, breakers: map[string]map[string]bool{"recs": {"open": true}}, sick: map[string]bool{}}
	p := &play{Run: &Run{design: design}, scenario: &row, cell: c, watch: w, found: found{}}
	if change != nil {
		change(p)
	}
	p.judge()
	return c.Findings
}

func TestJudge_FailsWhenTheFaultDidNotHappenAsWhenItSpread(t *testing.T) {
	crash, _ := scenario.Find(scenario.OnCluster(scenario.ClusterInputs(), false), scenario.Crash, func(s scenario.Scenario) string { return s.Name })
	good := func() *result.Cell {
		return &result.Cell{Restarts: map[string]int{"recs": 3}, Measured: result.Figures{Features: map[scenario.Feature]result.Feature{
			scenario.Checkout: {Requests: 100, OK: 100}, scenario.Recs: {Requests: 100, OK: 10, Outcomes: map[string]int64{"degraded": 90}},
		}}}
	}
	well := func(p *play) {
		p.watch.reasons["recs"] = map[string]bool{crashLoop: true}
		p.watch.sick["recs"] = true
		p.books = check.Report{Clean: true, Acknowledged: 100}
		p.found.notef(scenario.Recovers, true, "at once")
	}
	failed := func(c *result.Cell, change func(*play)) (names []string) {
		for _, f := range judged(scenario.Split, crash, c, func(p *play) { well(p); change(p) }) {
			if !f.Met {
				names = append(names, f.Signal)
			}
		}
		return names
	}
	if got := failed(good(), func(*play) {}); len(got) != 0 {
		t.Errorf("all is as it should be: got %v", got)
	}
	for name, c := range map[string]struct {
		cell   func(*result.Cell)
		change func(*play)
		want   string
	}{
		"no restart":     {cell: func(c *result.Cell) { c.Restarts["recs"] = 0 }, want: "recs is started again"},
		"no loop":        {change: func(p *play) { delete(p.watch.reasons, "recs") }, want: "recs shows CrashLoopBackOff"},
		"no fault":       {change: func(p *play) { delete(p.watch.sick, "recs") }, want: "the status shows the fault of recs"},
		"whole pages":    {cell: func(c *result.Cell) { c.Measured.Features[scenario.Recs] = result.Feature{Requests: 100, OK: 100} }, want: "answers come without the part of recs"},
		"it spread":      {cell: func(c *result.Cell) { c.Restarts["search"] = 1 }, want: "nothing but recs is restarted"},
		"lost checkouts": {cell: func(c *result.Cell) { c.Measured.Features[scenario.Checkout] = result.Feature{Requests: 100, OK: 99} }, want: "no request of checkout fails"},
		"no checkouts":   {cell: func(c *result.Cell) { delete(c.Measured.Features, scenario.Checkout) }, want: "no request of checkout fails"},
		"bad books":      {change: func(p *play) { p.books.Clean = false }, want: "the order books are clean"},
		"empty books":    {change: func(p *play) { p.books.Acknowledged = 0 }, want: "the order books are clean"},
	} {
		cell := good()
		if c.cell != nil {
			c.cell(cell)
		}
		if c.change == nil {
			c.change = func(*play) {}
		}
		if got := failed(cell, c.change); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestJudge_ExpectsTheSplitsWallsOfTheSplitOnly(t *testing.T) {
	row := scenario.Scenario{Fault: scenario.Fault{Kind: fault.Crash}, Signals: []scenario.Signal{{Kind: scenario.Alone, Of: "recs"}, {Kind: scenario.Restarts, Of: "recs"}}}
	for design, want := range map[string]int{scenario.Split: 2, scenario.SharedPool: 1} {
		if got := judged(design, row, &result.Cell{}, nil); len(got) != want {
			t.Errorf("%s: got %+v, want %d findings", design, got, want)
		}
	}
}

func TestAsFast_ComparesTheMiddleSecondsOfQuietAndFault(t *testing.T) {
	start := time.Unix(1000, 0)
	windows := []window{{start.Add(20 * time.Second), start.Add(30 * time.Second)}, {start.Add(40 * time.Second), start.Add(50 * time.Second)}}
	cell := func(quiet, sick float64) *result.Cell {
		c := &result.Cell{Started: start, WarmUp: 2}
		for second := range int64(60) {
			p95 := quiet
			switch at := start.Add(time.Duration(second) * time.Second); {
			case second < 2 || second == 19 || second == 20 || second == 30:
				p95 = 5000 // warm-up and edges are not looked at
			case slices.ContainsFunc(windows, func(w window) bool { return !at.Before(w.from) && at.Before(w.to) }):
				p95 = sick
			}
			if second%7 == 3 {
				p95 += 900 // the machine does something else
			}
			c.Series = append(c.Series, result.Second{T: second, Features: map[scenario.Feature]result.SecondFeature{scenario.Checkout: {Requests: 5, P95MS: p95}}})
		}
		return c
	}
	for _, x := range []struct {
		quiet, sick float64
		want        bool
	}{{20, 20, true}, {20, 23.9, true}, {20, 24.1, false}, {100, 111, true}, {100, 113, false}} {
		p := &play{cell: cell(x.quiet, x.sick), windows: windows}
		if got := p.asFast(scenario.Checkout); got.Met != x.want {
			t.Errorf("quiet %v, sick %v: got %+v, want %v", x.quiet, x.sick, got, x.want)
		}
	}
	never := &play{cell: cell(20, 20)}
	if got := never.asFast(scenario.Checkout); got.Met {
		t.Errorf("no fault at all: got %+v", got)
	}
}
