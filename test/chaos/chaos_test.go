//go:build unix

// Package chaos proves that no order is lost and no money: it lets customers order at a steady rate while processes are
// killed, restarted, frozen and cut off from each other and events come twice, late and in another order, and then holds
// the books against the shop's invariants. It knows the shop from outside, as its operator does.
//
// It runs when CHAOS_SECONDS says for how long; CHAOS_SEED repeats a schedule (not the interleaving that came of it).
package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/watertight/test/cable"
	"example.com/watertight/test/shop"
)

const (
	// minFaults is how many faults a run has at least; it goes on for longer when there were fewer.
	minFaults = 200
	// recovery is how long the shop has, once the faults end, to bring every acknowledged order to its end.
	recovery = 30 * time.Second
)

// settings are one run's.
type settings struct {
	duration time.Duration
	seed     uint64
}

func readSettings(tb testing.TB) settings {
	tb.Helper()
	seconds := os.Getenv("CHAOS_SECONDS")
	if seconds == "" {
		return settings{}
	}
	n, err := strconv.Atoi(seconds)
	if err != nil || n < 1 {
		tb.Fatalf("CHAOS_SECONDS: must be a number of seconds, is %q", seconds)
	}
	s := settings{duration: time.Duration(n) * time.Second, seed: rand.Uint64N(1_000_000)}
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		if s.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			tb.Fatalf("CHAOS_SEED: must be a number, is %q", text)
		}
	}
	return s
}

var live = newRig()

func TestMain(m *testing.M) { os.Exit(live.Main(m)) }

func TestChaos_EveryAcknowledgedOrderEndsAndTheBooksAgree(t *testing.T) {
	run := readSettings(t)
	if run.duration == 0 {
		t.Skip("set CHAOS_SECONDS, or use make chaos")
	}
	t.Logf("seed %d; CHAOS_SEED=%d repeats the schedule", run.seed, run.seed)
	live.seed = run.seed
	s := live.Get(t)
	crowd := newCrowd(t, s, run.seed)
	ordering := crowd.start()
	faults := newFaults(t, s, live, run.seed)
	faults.run(run.duration, minFaults)
	ordering.stop()
	dir := t.TempDir()
	// The promise is about what was acknowledged by now. Who has no answer yet goes on asking meanwhile, and is checked after.
	ended := time.Now()
	checkOrders(t, s, crowd.writeAcknowledged(filepath.Join(dir, "acked.txt")))
	took := time.Since(ended)
	crowd.await(2*recovery - took)
	report := checkOrders(t, s, crowd.writeAcknowledged(filepath.Join(dir, "acked-at-last.txt")))

	crashes := crashPoints(t, s)
	judgeDeaths(t, s, faults)
	crowd.judge(report.Orders.sum())
	judgeEnds(t, report)
	faults.judge()
	judgeCrashes(t, crashes)
	total := faults.total() + int(crashes.sum())
	if total < minFaults {
		t.Errorf("%d faults, want at least %d", total, minFaults)
	}
	t.Logf("chaos: seed %d, %d faults (%s; at crash points: %s), %s; final: %s; clean %s after the last fault",
		run.seed, total, faults, crashes, crowd, report.Orders, took.Round(100*time.Millisecond))
}

// judgeEnds reports orders that came to no such ends as they have in a shop that works: a shop in which nothing is sold
// has clean books, too.
func judgeEnds(t *testing.T, r report) {
	t.Helper()
	if r.DeadLetters.sum() > 0 {
		t.Errorf("%v events were given up, want none", r.DeadLetters)
	}
	for _, end := range []string{"confirmed", "rejected", "cancelled"} {
		if r.Orders[end] == 0 {
			t.Errorf("no order was %s: %s", end, r.Orders)
		}
	}
	if 3*r.Orders["confirmed"] < r.Orders.sum() {
		t.Errorf("less than a third of the orders were confirmed: %s", r.Orders)
	}
}

// counts are numbers by name.
type counts map[string]int64

// String lists them as "7 confirmed, 2 rejected".
func (c counts) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%d %s", c[name], name))
	}
	return strings.Join(parts, ", ")
}

func (c counts) sum() (n int64) {
	for _, v := range c {
		n += v
	}
	return n
}

// report is what lab check prints, as far as the test looks into it.
type report struct {
	Clean       bool   `json:"clean"`
	Orders      counts `json:"orders"`
	DeadLetters counts `json:"dead_letters"`
}

// checkOrders has lab hold the databases against the invariants. A broken one ends the test, after a second look that tells
// whether what is missing was late or lost.
func checkOrders(t *testing.T, s *shop.Shop, acked string) report {
	t.Helper()
	began := time.Now()
	r, out := check(t, s, acked, recovery)
	if !r.Clean {
		again, later := check(t, s, acked, time.Minute)
		t.Fatalf("not clean %v after the last fault; clean after %v: %v\n%s\n%s", recovery, time.Since(began), again.Clean, out, later)
	}
	return r
}

func check(t *testing.T, s *shop.Shop, acked string, wait time.Duration) (r report, out string) {
	t.Helper()
	answer, err := s.LabCommand(t, "check", "--dir", s.Dir(), "--acked", acked, "--wait", wait.String(), "--output", "json").Output()
	if unmarshalErr := json.Unmarshal(answer, &r); unmarshalErr != nil {
		t.Fatalf("lab check: %v, %v in %q", err, unmarshalErr, answer)
	}
	if (err == nil) != r.Clean {
		t.Fatalf("lab check ended with %v, and its report says clean: %v\n%s", err, r.Clean, answer)
	}
	return r, string(answer)
}

// judgeDeaths reports every end of one of the shop's own processes that is neither a kill -9 nor what the schedule asked
// for: a restart ends with exit code 0, or at once when it comes twice. PostgreSQL may need several attempts to start while
// what is left of it goes.
func judgeDeaths(t *testing.T, s *shop.Shop, f *faults) {
	t.Helper()
	deaths, err := s.Deaths()
	if err != nil {
		t.Fatal(err)
	}
	asked := f.count("restart service")
	for _, d := range deaths {
		switch {
		case d.Name == "postgres" || d.Name == "nats" || d.How == "signal: killed":
		case asked > 0 && (d.How == "exit code 0" || d.How == "signal: terminated"):
			asked--
		default:
			t.Errorf("%s ended with %s: %s", d.Name, d.How, lastLines(s, d.Name))
		}
	}
}

var crashed = regexp.MustCompile(`"msg":"crash point",[^\n]*"point":"([a-z-]+)"`)

// crashPoints counts the processes that died at a crash point, by point, from what they logged last.
func crashPoints(t *testing.T, s *shop.Shop) counts {
	t.Helper()
	died := counts{}
	for _, point := range []string{"after-publish", "after-effect", "after-commit", "before-reply", "after-answer"} {
		died[point] = 0
	}
	logs, err := filepath.Glob(filepath.Join(s.Dir(), "logs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range crashed.FindAllSubmatch(content, -1) {
			died[string(found[1])]++
		}
	}
	return died
}

func judgeCrashes(t *testing.T, died counts) {
	t.Helper()
	for _, point := range slices.Sorted(maps.Keys(died)) {
		if died[point] == 0 {
			t.Errorf("no process died at the crash point %s", point)
		}
	}
}

// lastLines is the end of a process's log.
func lastLines(s *shop.Shop, process string) string {
	content, err := os.ReadFile(filepath.Join(s.Dir(), "logs", process+".log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(len(lines)-5, 0):], "\n")
}

// rig is the shop, with cables between its services and the database and the broker.
type rig struct {
	*shop.Lazy
	seed           uint64 // set before the shop is started
	postgres, nats *cable.Cable
}

func newRig() *rig {
	r := &rig{}
	r.Lazy = shop.New(r.prepare)
	return r
}

// prepare lays the cables, has two or three replicas of everything, and shortens the times after which what a dead process
// held is taken over: with the defaults of 30 s nothing could be said of what happens within 30 s.
func (r *rig) prepare(int) (shop.Settings, error) {
	random := rand.New(rand.NewPCG(r.seed, 1))
	var dir string
	target := func(process, protocol string) func() (string, error) {
		return func() (string, error) {
			record, err := shop.ReadRecord(dir)
			for _, p := range record.Processes {
				if p.Name == process {
					return p.Addresses[protocol], nil
				}
			}
			return "", fmt.Errorf("%s does not run: %w", process, err)
		}
	}
	var err error
	if r.postgres, err = cable.Lay(target("postgres", "sql")); err != nil {
		return shop.Settings{}, err
	}
	if r.nats, err = cable.Lay(target("nats", "nats")); err != nil {
		return shop.Settings{}, err
	}
	flags := []string{"--restart-backoff", "300ms", "--restart-backoff-max", "300ms",
		"--via", "postgres=" + r.postgres.Address(), "--via", "nats=" + r.nats.Address()}
	for _, service := range []string{"checkout", "inventory", "payment", "gateway", "search", "recs"} {
		flags = append(flags, "--replicas", fmt.Sprintf("%s=%d", service, 2+random.IntN(2)))
	}
	// Two crash points are of one service; each of the others is at one of the three who have them. A service kills itself
	// some ten times at each: the fewer events it has, the likelier at one of them. Crash points do not end with the other
	// faults, so that they have to be rare enough for a backlog of some hundred events to be worked off all the same.
	rates := map[string]string{"checkout": "0.01", "inventory": "0.015", "payment": "0.02"}
	own := map[string]string{"checkout": ",before-reply:0.015", "payment": ",after-answer:0.02"}
	points := []string{"after-publish", "after-effect", "after-commit"}
	random.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	for i, service := range []string{"checkout", "inventory", "payment"} {
		mode := []string{"lease", "lease", "tx"}[random.IntN(3)]
		crash := points[i] + ":" + rates[service] + own[service]
		for _, variable := range []string{"CRASH_POINT=" + crash, "RELAY_MODE=" + mode, "RELAY_LEASE=4s", "RELAY_PUBLISH_TIMEOUT=1500ms", "CONSUMER_ACK_WAIT=4s"} {
			flags = append(flags, "--env", service+"."+variable)
		}
	}
	flags = append(flags, "--env", "payment.PROVIDER_TIMEOUT=1s", "--env", "payment.PROVIDER_LEASE=4s", "--env", "payment.SANDBOX_SLOW=400ms")
	// With a short expiry many orders are cancelled while they are under way; with a long one each has to come through.
	if r.seed%2 == 1 {
		flags = append(flags, "--env", "checkout.ORDER_EXPIRY=10s")
	}
	return shop.Settings{Flags: flags, Environ: []string{"LOG_FORMAT=json"}, Folder: func(d string) { dir = d }}, nil
}
