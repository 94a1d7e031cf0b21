package scenario

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/watertight/platform/fault"
)

func TestTable_HasEveryScenarioForEveryDesign(t *testing.T) {
	var names, designs []string
	for _, d := range Designs() {
		designs = append(designs, d.Name)
	}
	for _, s := range Table(Default()) {
		names = append(names, s.Name)
		if s.About == "" || s.WarmUp >= s.Length || s.Fault.At >= s.Length || s.Workers < 1 || len(s.Routes) < 3 {
			t.Errorf("%s is not whole: %+v", s.Name, s)
		}
		for _, d := range designs {
			if e := s.Expect[d]; e.Checkout == "" || e.Recs == "" {
				t.Errorf("%s, %s: nothing is expected", s.Name, d)
			}
		}
	}
	if diff := cmp.Diff([]string{Normal, Slow, Crash, Redeployed, OOM, Poison, RetryStorm, Exports, SharedDB, CPU}, names); diff != "" {
		t.Errorf("scenarios (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{SharedPool, PoolPerFeature, Roles, Split, SyncCall}, designs); diff != "" {
		t.Errorf("designs (-want +got):\n%s", diff)
	}
}

func TestTable_SetsOnlyFaultsThatAServiceKnows(t *testing.T) {
	for _, s := range Table(Default()) {
		if k := s.Fault.Kind; k != None && k != Redeploy && !slices.Contains(fault.Kinds(), k) {
			t.Errorf("%s: no service knows a fault %q", s.Name, k)
		}
	}
}

func TestDefault_IsTheArticlesShop(t *testing.T) {
	in := Default()
	if err := in.Validate(); err != nil {
		t.Fatal(err)
	}
	normal := Table(in)[0]
	want := []Route{
		{Checkout, 40, 20 * time.Millisecond, time.Second, 4, 0},
		{Search, 80, 10 * time.Millisecond, time.Second, 6, 0},
		{Recs, 80, 15 * time.Millisecond, time.Second, 6, 0},
	}
	if diff := cmp.Diff(want, normal.Routes); diff != "" || normal.Workers != 16 || normal.Length != 20*time.Second || normal.WarmUp != 2*time.Second {
		t.Errorf("got %+v; routes (-want +got):\n%s", normal, diff)
	}
	export, _ := Find(Table(in), Exports, func(s Scenario) string { return s.Name })
	own := 0
	for _, r := range export.Routes {
		own += r.Workers
	}
	last := export.Routes[3]
	if export.Workers != 200 || own > 200 || last.Workers != 16 || last.Queue != 32 || last.Rate != 20 || export.Fault.Delay != 10*time.Second {
		t.Errorf("export: got %+v, %d workers in pools of their own", export, own)
	}
}

func TestInputs_NameTheirFlags(t *testing.T) {
	flags := Default().Flags()
	for flag, want := range map[string]string{
		"rate": "200", "slow-delay": "2s", "oom-calls": "80", "db-delay": "2s", "cpu-factor": "3", "hop-max": "1.6ms", "sync-fallback": "false",
	} {
		if got := flags[flag]; got != want {
			t.Errorf("--%s: got %q, want %q", flag, got, want)
		}
	}
}

func TestInputs_SayEverythingThatIsWrongInTheSameOrder(t *testing.T) {
	in := Default()
	in.Rate, in.Workers, in.HopMin, in.Queue, in.Retries, in.TailFactor, in.ExportSharedWorkers = -1, 0, -1, -1, 11, 0, 18
	first := in.Validate()
	for _, want := range []string{"--rate: ", "--workers: ", "--hop-min: ", "--queue: ", "--retries: ", "--tail-factor: ", "--export-shared-workers: "} {
		if first == nil || !strings.Contains(first.Error(), want) {
			t.Errorf("got %v, want an error with %q", first, want)
		}
	}
	for range 20 {
		if again := in.Validate(); again.Error() != first.Error() {
			t.Fatalf("got %v and then %v", first, again)
		}
	}
}

func TestJudge_FindsTheWord(t *testing.T) {
	const normal = 20 * time.Millisecond
	for _, c := range []struct {
		failed float64
		median time.Duration
		normal time.Duration
		want   Word
	}{
		{0, normal, normal, Fine},
		{0.0099, normal, normal, Fine},
		{0.01, normal, normal, Hurt},
		{0.499, 0, normal, Hurt},
		{0.5, 0, normal, Down},
		{0, 30 * time.Millisecond, normal, Slower},
		{0, 29 * time.Millisecond, normal, Fine},
		{0, time.Hour, 0, Fine},
	} {
		if got := Judge(c.failed, c.median, c.normal); got != c.want {
			t.Errorf("%v failed, median %v beside %v: got %s, want %s", c.failed, c.median, c.normal, got, c.want)
		}
	}
}

func TestWord_HurtIsMetByDownAndNothingElseByAnother(t *testing.T) {
	words := []Word{Fine, Slower, Hurt, Down}
	for _, became := range words {
		for _, expected := range words {
			want := became == expected || (expected == Hurt && became == Down)
			if got := became.Meets(expected); got != want {
				t.Errorf("%s where %s was expected: got %v, want %v", became, expected, got, want)
			}
		}
	}
}
