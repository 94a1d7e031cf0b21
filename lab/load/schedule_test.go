package load

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func first(c Config, n int) []time.Duration {
	out := make([]time.Duration, 0, n)
	for at := range c.times() {
		if len(out) == n {
			return out
		}
		out = append(out, at)
	}
	return out
}

func TestPoisson_GapsHaveTheMeanAndVarianceOfTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Default()
		c.Seed, c.Rate = rapid.Uint64().Draw(t, "seed"), rapid.Float64Range(1, 20_000).Draw(t, "rate")
		const n = 20_000
		times := first(c, n)
		if !slices.IsSorted(times) || times[0] < 0 {
			t.Fatalf("not in order of time: %v…", times[:5])
		}
		var sum, squares float64
		previous := time.Duration(0)
		for _, at := range times {
			gap := (at - previous).Seconds() * c.Rate // exponential with mean 1 and variance 1
			sum, squares, previous = sum+gap, squares+gap*gap, at
		}
		mean := sum / n
		variance := squares/n - mean*mean
		// The estimates' own standard deviations are √(1/n) and √(8/n); six of them are missed once in 500 million.
		if math.Abs(mean-1) > 6*math.Sqrt(1.0/n) {
			t.Errorf("mean gap: got %.4f/rate, want 1", mean)
		}
		if math.Abs(variance-1) > 6*math.Sqrt(8.0/n) {
			t.Errorf("variance of the gaps: got %.4f/rate², want 1", variance)
		}
	})
}

func TestConstant_IsOnTimeAfterADay(t *testing.T) {
	c := Default()
	c.Arrivals, c.Rate = Constant, 300
	i := 0
	for at := range c.times() {
		if want := time.Duration(math.Round(float64(i) / 300 * 1e9)); at != want {
			t.Fatalf("arrival %d: got %v, want %v", i, at, want)
		}
		if i++; i > 1_000_000 {
			return
		}
	}
}

// requests are the first n of a run, as text.
func requests(c Config, n int) []string {
	var out []string
	for a := range arrivals(c) {
		if len(out) == n {
			return out
		}
		out = append(out, a.At.String()+" "+string(a.Request.wire))
	}
	return out
}

func TestArrivals_RepeatWithTheSeedAndOnlyWithIt(t *testing.T) {
	c := Default()
	c.Target, c.RunID, c.Products = target(t, "http://shop.test"), "r", []Product{{"A", "Red Lamp", "GBP"}, {"B", "Blue Cup", "GBP"}}
	if diff := cmp.Diff(requests(c, 500), requests(c, 500)); diff != "" {
		t.Errorf("the same seed, again (-first +second):\n%s", diff)
	}
	other := c
	other.Seed++
	if cmp.Equal(requests(c, 500), requests(other, 500)) {
		t.Error("two seeds give the same run")
	}
	other = c
	other.Mix = Mix{Checkout: 1}
	if diff := cmp.Diff(first(c, 500), first(other, 500)); diff != "" {
		t.Errorf("another mix moves the arrivals (-was +is):\n%s", diff)
	}
}

func TestShopper_KeepsTheMixAndOneCurrencyAnOrder(t *testing.T) {
	c := Default()
	c.Target, c.RunID = target(t, "http://shop.test/base/"), "r"
	c.Mix = Mix{Checkout: 20, Search: 40, Recs: 30, Page: 10}
	c.Products = []Product{{"A", "Red Lamp", "GBP"}, {"B", "Blue Cup", "EUR"}}
	got := map[Operation]float64{}
	next := newShopper(c)
	const n = 20_000
	for range n {
		r := next.request()
		got[r.Operation] += 100.0 / n
		text := string(r.wire)
		if strings.Contains(text, `"GBP"`) && strings.Contains(text, `"B"`) {
			t.Fatalf("an order in pounds has a product priced in euros: %s", text)
		}
		if !strings.Contains(text, " /base/api/v1/") {
			t.Fatalf("the target's own path is missing: %s", text)
		}
	}
	for op, want := range map[Operation]float64{Checkout: 20, Search: 40, Recs: 30, Page: 10} {
		if math.Abs(got[op]-want) > 2 { // six standard deviations
			t.Errorf("%s: got %.1f %%, want %.0f (seed %d)", op, got[op], want, c.Seed)
		}
	}
}

func TestReadTimes_SortsAndNamesTheLineThatIsWrong(t *testing.T) {
	got, err := ReadTimes(strings.NewReader("# from a log\n1.5\n\n 0.25 \n3\n"))
	want := []time.Duration{250 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("got %v, %v (-want +got):\n%s", got, err, diff)
	}
	for _, text := range []string{"1\n-1\n", "1\nsoon\n", "1\nNaN\n", "1\n1e300\n"} {
		if _, err := ReadTimes(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: got %v, want an error about line 2", text, err)
		}
	}
}

func TestMix_ReadsWhatItWrites(t *testing.T) {
	if got, err := ParseMix(Default().Mix.String()); err != nil || got != Default().Mix {
		t.Errorf("got %v, %v, want %v", got, err, Default().Mix)
	}
	for _, text := range []string{"", "checkout", "checkout=x", "checkout=1,checkout=2", "basket=1", "checkout=0", "checkout=-1,recs=2", "checkout=NaN", "checkout=Inf"} {
		if got, err := ParseMix(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestValidate_NamesWhatIsWrong(t *testing.T) {
	for want, spoil := range map[string]func(*Config){
		"rate":          func(c *Config) { c.Rate = 0 },
		"rate NaN":      func(c *Config) { c.Rate = math.NaN() },
		"duration":      func(c *Config) { c.Duration = 0 },
		"warmup":        func(c *Config) { c.Warmup = c.Duration },
		"warmup -1s":    func(c *Config) { c.Warmup = -time.Second },
		"timeout":       func(c *Config) { c.Timeout = 0 },
		"retries":       func(c *Config) { c.ClientRetries = -1 },
		"max in flight": func(c *Config) { c.MaxInFlight = -1 },
		"late after":    func(c *Config) { c.LateAfter = 0 },
		"customers":     func(c *Config) { c.Customers = 0 },
		"products":      func(c *Config) { c.MaxProducts = 0 },
		"arrivals":      func(c *Config) { c.Arrivals = "bursty" },
		"replay":        func(c *Config) { c.Arrivals = Replayed },
		"mix":           func(c *Config) { c.Mix = Mix{} },
	} {
		c := Default()
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %q", err, want)
		}
	}
	if err := Default().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
}

func TestParseTarget_RefusesWhatIsNoBaseURL(t *testing.T) {
	for _, text := range []string{"", "127.0.0.1:8080", "ftp://shop", "http://", "http://user@shop", "http://shop?x=1", "http://shop#x", "http://a b"} {
		if got, err := ParseTarget(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
	for text, addr := range map[string]string{"http://shop": "shop:80", "https://shop/": "shop:443", "http://[::1]:8080/x/": "[::1]:8080"} {
		if got := target(t, text); got.addr != addr {
			t.Errorf("%q: got %s, want %s", text, got.addr, addr)
		}
	}
}
