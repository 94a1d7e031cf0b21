// Package scenario is the one table of what may happen to the shop (the scenarios) and of the shapes that the shop may have
// (the designs), with what is expected of each pair. The simulation, the measured runs, the tests on a cluster and the game
// days all read it. It runs nothing.
package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.com/watertight/platform/fault"
)

// Feature is what a request is for.
type Feature string

// The features. Export exists in the scenario of that name only.
const (
	Checkout Feature = "checkout"
	Search   Feature = "search"
	Recs     Feature = "recs"
	Export   Feature = "export"
)

// Design is one of the shop's shapes.
type Design struct {
	Name  string
	About string

	OnePool    bool // all features share one pool of workers
	OneProcess bool // a crash or a restart ends every feature, and no request crosses a network
	OneBuild   bool // what a redeploy starts is the whole shop's build, with its start-up time
	CallsRecs  bool // a checkout holds its worker while it waits for recs
	Guarded    bool // that call has a short time-out, a bulkhead and a breaker, and a checkout goes on without its answer
}

// Raw reports whether the design runs with the limits of somebody who never thought of any: one second for everything, a
// queue without an end, no breaker, and work that goes on when its caller has left.
func (d Design) Raw() bool { return d.OnePool || (d.CallsRecs && !d.Guarded) }

// The names of the designs.
const (
	SharedPool     = "shared-pool"
	PoolPerFeature = "pool-per-feature"
	Roles          = "roles"
	Split          = "split"
	SyncCall       = "sync-call"

	SyncCallGuarded = "sync-call-guarded"
)

// Designs lists the designs, from everything shared to the mistake that undoes the split.
func Designs() []Design {
	return []Design{
		{Name: SharedPool, About: "one process, one pool for all features", OnePool: true, OneProcess: true, OneBuild: true},
		{Name: PoolPerFeature, About: "one process, a pool for each feature", OneProcess: true, OneBuild: true},
		{Name: Roles, About: "one build, a process for each feature", OneBuild: true},
		{Name: Split, About: "a service for each feature"},
		{Name: SyncCall, About: "a service for each feature, but checkout waits for recs", CallsRecs: true},
	}
}

// Running lists the designs that can be run: those of the simulation, and the mistake put right, which takes a breaker and
// so is no matter of queues alone.
func Running() []Design {
	return append(Designs(), Design{
		Name: SyncCallGuarded, About: "checkout calls recs behind a time-out, a bulkhead and a breaker", CallsRecs: true, Guarded: true,
	})
}

// Kind is what goes wrong: a kind of package fault, None or Redeploy.
type Kind = fault.Kind

// What a scenario may have besides the faults of package fault.
const (
	None     Kind = ""
	Redeploy Kind = "redeploy" // recs is shipped anew: the process that has it restarts
)

// Fault is what goes wrong, and when. It lasts to the end of the run, unless For says otherwise.
type Fault struct {
	Kind     Kind
	Features []Feature // whose requests it bites
	On       []string  // services that it is set for, where the shop is real
	At       time.Duration
	For      time.Duration // how long each time; 0: to the end of the run
	Pause    time.Duration // between one time and the next
	Times    int           // how often; 0 is once

	Delay        time.Duration // slow, db-lock: what a request takes; cpu: how much longer, of recs; crash, poison: when a request ends its process
	Share        float64       // which share of the requests it bites
	Calls        int           // oom: how many requests use the memory up
	Factor       float64       // cpu: how many times longer a request takes
	RestartWhole time.Duration // how long the process is away when it is the whole build
	RestartOne   time.Duration // and when it is one service
}

// Route is a feature's traffic and its own pool.
type Route struct {
	Feature  Feature
	Rate     float64       // requests a second
	Time     time.Duration // base of the service time
	Patience time.Duration // when its clients give up
	Workers  int           // of its own pool, where it has one
	Queue    int           // places in that pool's queue; 0 is no limit
}

// Scenario is a run: traffic, workers, what goes wrong and what is expected to become of it.
type Scenario struct {
	Name    string
	About   string
	Routes  []Route
	Workers int // of the shared pool
	Queue   int // places in its queue; 0 is no limit
	Fault   Fault
	Retries int // how often each client tries again, at once
	WarmUp  time.Duration
	Length  time.Duration
	Expect  map[string]Expectation // by design
	// Real is what a real shop becomes where that is not what the model becomes.
	Real map[string]Expectation

	Hypothesis string   // what the split is expected to stand
	Signals    []Signal // by which the split shows that the fault is there, and that it is contained
}

// The names of the scenarios.
const (
	Normal     = "normal"
	Slow       = "slow"
	Crash      = "crash"
	Redeployed = "redeploy"
	OOM        = "oom"
	Poison     = "poison"
	RetryStorm = "retry-storm"
	Exports    = "export"
	SharedDB   = "shared-db"
	CPU        = "cpu"
)

// routes is the everyday traffic.
func (in Inputs) routes() []Route {
	return []Route{
		{Checkout, in.Rate * in.CheckoutShare, in.CheckoutTime, in.Patience, in.CheckoutWorkers, in.Queue},
		{Search, in.Rate * in.SearchShare, in.SearchTime, in.Patience, in.SearchWorkers, in.Queue},
		{Recs, in.Rate * in.RecsShare, in.RecsTime, in.Patience, in.RecsWorkers, in.Queue},
	}
}

// exportRoutes adds the export route. The workers that it does not get are divided among the others as the everyday's are.
func (in Inputs) exportRoutes() []Route {
	routes := in.routes()
	everyday := 0
	for _, r := range routes {
		everyday += r.Workers
	}
	rest := in.ExportSharedWorkers - in.ExportWorkers
	for i := range routes {
		routes[i].Workers = max(rest*routes[i].Workers/everyday, 1)
	}
	return append(routes, Route{Export, in.ExportRate, in.ExportTime, in.ExportPatience, in.ExportWorkers, in.ExportQueue})
}

// Table returns the scenarios, made of the inputs. What is sick is recs, or what recs shares with the others; in Exports it
// is the export route.
func Table(in Inputs) []Scenario {
	recs := []Feature{Recs}
	all := []Feature{Checkout, Search, Recs}
	everyday := Scenario{Routes: in.routes(), Workers: in.Workers, Queue: in.Queue, WarmUp: in.WarmUp, Length: in.Duration}
	with := func(name, about string, f Fault, expect map[string]Expectation) Scenario {
		s := everyday
		s.Name, s.About, s.Fault, s.Expect = name, about, f, expect
		s.Hypothesis, s.Signals = hypothesis(name), signals(name)
		return s
	}
	atRecs := []string{string(Recs)}
	slow := Fault{Kind: fault.Slow, Features: recs, On: atRecs, At: in.FaultAt, Delay: in.SlowDelay, Share: 1}
	dies := Fault{Features: recs, On: atRecs, At: in.FaultAt, Delay: in.CrashAfter, Share: 1, RestartWhole: in.Restart, RestartOne: in.Restart}
	crash, oom, poison := dies, dies, dies
	crash.Kind = fault.Crash
	oom.Kind, oom.Calls, oom.Delay = fault.OOM, in.OOMCalls, 0
	poison.Kind, poison.Share = fault.Poison, in.PoisonShare

	storm := with(RetryStorm, "recs is slow, and clients that fail try again at once", slow, contained(Down, false))
	storm.Retries = in.Retries
	export := with(Exports, fmt.Sprintf("an export route slows down from %v to %v", in.ExportTime, in.ExportDelay),
		Fault{Kind: fault.Slow, Features: []Feature{Export}, On: atRecs, At: in.FaultAt, Delay: in.ExportDelay, Share: 1}, exportExpectations())
	export.Routes, export.Workers, export.Length = in.exportRoutes(), in.ExportSharedWorkers, in.ExportDuration

	locked := with(SharedDB, "recs holds locks on a database that all features use",
		Fault{
			Kind: fault.DBLock, Features: all, On: []string{string(Checkout), string(Search), string(Recs)}, At: in.FaultAt, Delay: in.DBDelay, Share: 1,
		}, same(Down))
	// The shop's search and recs answer from memory, and read their database only to bring that up to date.
	locked.Real = map[string]Expectation{}
	for _, d := range Running() {
		locked.Real[d.Name] = Expectation{Down, Fine}
	}

	return []Scenario{
		with(Normal, "nothing goes wrong", Fault{}, same(Fine)),
		with(Slow, fmt.Sprintf("every recommendation takes %v", in.SlowDelay), slow, contained(Down, false)),
		with(Crash, fmt.Sprintf("every recommendation ends its process after %v", in.CrashAfter), crash, contained(Down, true)),
		with(Redeployed, fmt.Sprintf("recs is shipped anew at %v, by a restart", in.RedeployAt),
			Fault{
				Kind: Redeploy, Features: recs, On: atRecs, At: in.RedeployAt,
				RestartWhole: in.RedeployWhole, RestartOne: in.RedeployService,
			}, contained(Hurt, true)),
		with(OOM, "recommendations leak until the process is killed, again and again", oom, contained(Down, true)),
		with(Poison, fmt.Sprintf("%v of the recommendations end their process", in.PoisonShare), poison, contained(Down, true)),
		storm,
		export,
		locked,
		with(CPU, fmt.Sprintf("recs keeps the node's cores busy: everything on it takes %v times as long", in.CPUFactor),
			Fault{
				Kind: fault.CPU, Features: all, On: atRecs, At: in.FaultAt, Factor: in.CPUFactor, Share: 1,
				Delay: time.Duration(float64(in.RecsTime) * (in.CPUFactor - 1)),
			}, cpuExpectations()),
	}
}

// Find returns the element of a table of scenarios or designs that has the name.
func Find[T any](table []T, name string, nameOf func(T) string) (T, bool) {
	i := slices.IndexFunc(table, func(e T) bool { return nameOf(e) == name })
	if i < 0 {
		var none T
		return none, false
	}
	return table[i], true
}

// sorted makes the order of errors from a map the same each time.
func sorted(errs []error) []error {
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errs
}
