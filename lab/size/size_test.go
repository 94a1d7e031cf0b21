package size_test

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/watertight/lab/size"
)

func TestFormulas_GiveThePublishedFigures(t *testing.T) {
	checkout := size.Busy(40, size.MeanTime(20*time.Millisecond, 0.03, 3))
	search := size.Busy(80, size.MeanTime(10*time.Millisecond, 0.03, 3))
	others := checkout + search
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"mean checkout, ms", float64(size.MeanTime(20*time.Millisecond, 0.03, 3).Microseconds()) / 1000, 21.2},
		{"busy workers of the others", others, 1.696},
		{"busy workers of slow recs", size.Busy(80, 2*time.Second), 160},
		{"with a 300 ms time-out", size.Busy(80, 300*time.Millisecond), 24},
		{"an export of 0.5 s", size.Busy(20, 500*time.Millisecond), 10},
		{"an export of 10 s", size.Busy(20, 10*time.Second), 200},
		{"fill time, s", size.FillTime(16, 80).Seconds(), 0.2},
		{"time-out boundary, ms", float64(size.TimeoutBoundary(16, others, 80).Microseconds()) / 1000, 178.8},
		{"five services at 99.9 %", 100 * size.Series(0.999, 5), 99.500999001},
		{"crash loop, up", 100 * size.UpFraction(size.TimeToCrash(80, 50*time.Millisecond), 2*time.Second), 3.0303},
		{"time to crash, ms", float64(size.TimeToCrash(80, 50*time.Millisecond).Microseconds()) / 1000, 62.5},
		{"redeploy loss", size.RedeployLoss(40, 4*time.Second), 160},
		{"hop, ms", float64(size.HopCost(200*time.Microsecond, 1200*time.Microsecond).Microseconds()) / 1000, 2.6},
		{"a pool for 4/s x 5 s, full", float64(size.PoolSize(size.Busy(4, 5*time.Second), 1)), 20},
		{"a pool for 12 at 75 %", float64(size.PoolSize(12, 0.75)), 16},
		{"ten callers of 640", float64(size.PerReplica(640, 10)), 64},
	} {
		if math.Abs(c.got-c.want) > 1e-4*c.want {
			t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestFormulas_StandTheirEdges(t *testing.T) {
	if got := size.FillTime(16, 0); got != math.MaxInt64 {
		t.Errorf("fill time at rate 0: got %v, want for ever", got)
	}
	if got := size.TimeoutBoundary(2, 3, 80); got != 0 {
		t.Errorf("boundary of a pool that the others fill: got %v, want 0", got)
	}
	if got := size.PerReplica(3, 10); got != 1 {
		t.Errorf("3 among 10: got %d, want 1", got)
	}
	if got := size.PoolSize(0, 0.75); got != 1 {
		t.Errorf("pool for nothing: got %d, want 1", got)
	}
}

func texts(t *testing.T, in size.Inputs, routes []size.Route, pools []size.Pool) (map[string]string, []string) {
	t.Helper()
	plan, err := size.Calculate(in, routes, pools)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]string{}
	for _, l := range plan.Lines {
		if l.Formula == "" {
			t.Errorf("%s has no formula", l.Name)
		}
		byName[l.Name] = l.Text
	}
	return byName, plan.Warnings
}

func TestCalculate_PrintsThePublishedFigures(t *testing.T) {
	got, warnings := texts(t, size.Default(), size.DefaultRoutes(), nil)
	want := map[string]string{
		"busy checkout": "0.848", "busy search": "0.848", "busy recs": "1.272", "busy in all": "2.968 of 16 (18.6 %)",
		"busy recs, slow": "160.000", "fill time": "0.2 s", "time-out boundary": "178.8 ms", "recommended time-out": "128.8 ms",
		"pool checkout": "2, has 4", "pool search": "2, has 6", "pool recs": "2, has 6", "limit per replica": "6",
		"series availability": "99.501 %", "redeploy loss": "160", "crash-loop up-fraction": "3.03 %", "hop cost": "2.6 ms",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(warnings) != 0 {
		t.Errorf("got %q, want no warnings about the shop as it is", warnings)
	}
}

func TestCalculate_WarnsAboutUnsafeSettings(t *testing.T) {
	for want, change := range map[string]func(*size.Inputs, *[]size.Route, *[]size.Pool){
		"300ms is not below the boundary of 178.8 ms":                    func(in *size.Inputs, _ *[]size.Route, _ *[]size.Pool) { in.Timeout = 300 * time.Millisecond },
		"150ms is above the recommended 128.8 ms":                        func(in *size.Inputs, _ *[]size.Route, _ *[]size.Pool) { in.Timeout = 150 * time.Millisecond },
		"leaves nothing of the caller's deadline":                        func(in *size.Inputs, _ *[]size.Route, _ *[]size.Pool) { in.Timeout = time.Second },
		"3 tries of 400ms take 1.2s, more than the caller's deadline":    func(in *size.Inputs, _ *[]size.Route, _ *[]size.Pool) { in.Tries, in.PerTry = 3, 400*time.Millisecond },
		"the pools may open 110 connections, and the database takes 100": func(_ *size.Inputs, _ *[]size.Route, p *[]size.Pool) { *p = []size.Pool{{"a", 5, 16}, {"b", 3, 10}} },
		"checkout has 4 workers and 3 connections":                       func(_ *size.Inputs, _ *[]size.Route, p *[]size.Pool) { *p = []size.Pool{{"checkout", 3, 1}} },
		"checkout needs 0.85 workers on a normal day and has 0":          func(_ *size.Inputs, r *[]size.Route, _ *[]size.Pool) { (*r)[0].Workers = 0 },
		"checkout keeps its 1 workers 85 % busy":                         func(_ *size.Inputs, r *[]size.Route, _ *[]size.Pool) { (*r)[0].Workers = 1 },
		"no time-out makes the pool safe":                                func(in *size.Inputs, _ *[]size.Route, _ *[]size.Pool) { in.Workers = 2 },
		"even with one request each":                                     func(in *size.Inputs, _ *[]size.Route, _ *[]size.Pool) { in.Replicas = 7 },
	} {
		in, routes, pools := size.Default(), size.DefaultRoutes(), []size.Pool(nil)
		change(&in, &routes, &pools)
		_, warnings := texts(t, in, routes, pools)
		if all := strings.Join(warnings, "\n"); !strings.Contains(all, want) {
			t.Errorf("got %q, want a warning with %q", all, want)
		}
	}
}

func TestCalculate_AcceptsSafeSettings(t *testing.T) {
	in := size.Default()
	in.Timeout, in.Tries, in.PerTry = 120*time.Millisecond, 2, 150*time.Millisecond
	if _, warnings := texts(t, in, size.DefaultRoutes(), []size.Pool{{"checkout", 3, 22}, {"inventory", 1, 16}}); len(warnings) != 0 {
		t.Errorf("got %q, want none", warnings)
	}
}

func TestInputs_ReadRoutesAndPools(t *testing.T) {
	in := size.Inputs{Route: []string{"checkout=40,21.2ms,4", "recs=120.5,1s,6"}, DBPool: []string{"checkout=3,22"}}
	routes, err := in.Routes()
	if err != nil {
		t.Fatal(err)
	}
	pools, err := in.Pools()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]size.Route{{"checkout", 40, 21200 * time.Microsecond, 4}, {"recs", 120.5, time.Second, 6}}, routes); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]size.Pool{{"checkout", 3, 22}}, pools); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}

func TestInputs_NameWhatIsWrong(t *testing.T) {
	for _, text := range []string{"", "recs", "=1,2s,3", "recs=1,2s", "recs=0,2s,3", "recs=NaN,2s,3", "recs=1,2,3", "recs=1,-2s,3", "recs=1,2s,0", "recs=1,2s,3,4"} {
		if _, err := (size.Inputs{Route: []string{text}}).Routes(); err == nil || !strings.HasPrefix(err.Error(), "--route "+text) {
			t.Errorf("--route %q: got %v, want an error that names it", text, err)
		}
	}
	if _, err := (size.Inputs{Route: []string{"a=1,1s,1", "a=1,1s,1"}}).Routes(); err == nil {
		t.Error("a route that is there twice: got no error")
	}
	if _, err := (size.Inputs{DBPool: []string{"a=1"}}).Pools(); err == nil || !strings.HasPrefix(err.Error(), "--db-pool a=1") {
		t.Errorf("--db-pool a=1: got %v, want an error that names it", err)
	}
	for want, change := range map[string]func(*size.Inputs){
		"--workers: ":      func(in *size.Inputs) { in.Workers = 0 },
		"--utilisation: ":  func(in *size.Inputs) { in.Utilisation = 1 },
		"--availability: ": func(in *size.Inputs) { in.Availability = math.NaN() },
		"--slow-time: ":    func(in *size.Inputs) { in.SlowTime = 0 },
		"--slow nobody: ":  func(in *size.Inputs) { in.Slow = "nobody" },
		"--critical ":      func(in *size.Inputs) { in.Critical = "nobody" },
	} {
		in := size.Default()
		change(&in)
		if _, err := size.Calculate(in, size.DefaultRoutes(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// server answers as Prometheus does; its queries are checked by the names of the metrics in them.
func server(t *testing.T) *httptest.Server {
	t.Helper()
	type series struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"`
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/prom/api/v1/query" {
			http.NotFound(w, r)
			return
		}
		answers := map[string][]series{
			"sum by (upstream) (rate(watertight_upstream_requests_total": {
				{map[string]string{"upstream": "checkout"}, [2]any{1.5, "40"}},
				{map[string]string{"upstream": "recs"}, [2]any{1.5, "80.5"}},
				{map[string]string{"upstream": "search"}, [2]any{1.5, "0"}},
			},
			"sum by (pool) (rate(watertight_bulkhead_hold_seconds_sum": {
				{map[string]string{"pool": "checkout"}, [2]any{1.5, "0.0212"}},
				{map[string]string{"pool": "recs"}, [2]any{1.5, "0.0159"}},
				{map[string]string{"pool": "search"}, [2]any{1.5, "NaN"}},
			},
			"sum by (pool) (watertight_bulkhead_limit": {
				{map[string]string{"pool": "checkout"}, [2]any{1.5, "128"}}, {map[string]string{"pool": "recs"}, [2]any{1.5, "64"}},
				{map[string]string{"pool": "search"}, [2]any{1.5, "128"}},
			},
			"count by (pool) (watertight_bulkhead_limit": {
				{map[string]string{"pool": "checkout"}, [2]any{1.5, "2"}}, {map[string]string{"pool": "recs"}, [2]any{1.5, "2"}},
			},
		}
		for start, result := range answers {
			if strings.HasPrefix(r.URL.Query().Get("query"), start) {
				if err := json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": result}}); err != nil {
					t.Error(err)
				}
				return
			}
		}
		w.WriteHeader(http.StatusBadRequest)
		if _, err := w.Write([]byte(`{"status":"error","errorType":"bad_data","error":"parse error"}`)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestMeasured_ReadsRatesTimesAndLimits(t *testing.T) {
	routes, replicas, err := size.Measured(t.Context(), server(t).URL+"/prom", 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	want := []size.Route{{"checkout", 40, 21200 * time.Microsecond, 128}, {"recs", 80.5, 15900 * time.Microsecond, 64}}
	if diff := cmp.Diff(want, routes); diff != "" || replicas != 2 {
		t.Errorf("%d replicas, want 2; routes (-want +got):\n%s", replicas, diff)
	}
}

func TestMeasured_SaysWhatIsWrong(t *testing.T) {
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[]}}`)); err != nil {
			t.Error(err)
		}
	}))
	defer empty.Close()
	for _, c := range []struct {
		url    string
		window time.Duration
		want   string
	}{
		{"localhost:9090", time.Minute, "must be a URL"},
		{"http://localhost:9090", 0, "--window: "},
		{server(t).URL + "/elsewhere", time.Minute, "404 Not Found"},
		{empty.URL, time.Minute, "no upstream with traffic"},
	} {
		if _, _, err := size.Measured(t.Context(), c.url, c.window); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.url, err, c.want)
		}
	}
}
