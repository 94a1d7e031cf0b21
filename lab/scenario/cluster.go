package scenario

import (
	"slices"
	"time"

	"example.com/watertight/platform/fault"
)

// What may happen to a shop in Kubernetes besides the faults of package fault and Redeploy.
const (
	Rollout     Kind = "rollout"     // the processes On are replaced, one after the other; with no On all are
	DrainOff    Kind = "drain-off"   // as Rollout, by a release that does not drain; who runs it sees to that
	Unstartable Kind = "unstartable" // On is released in a version that ends as it starts
	Kill        Kind = "kill"        // every pod is deleted at once, process by process
	Evict       Kind = "evict"       // the pods of On, two of each, are evicted as for the drain of their node
	Absent      Kind = "absent"      // the servers On are taken away
	Grow        Kind = "grow"        // On gets two replicas more
)

// The names of the scenarios that need a cluster.
const (
	RolledOut   = "rollout"
	Undrained   = "undrained"
	BadRelease  = "bad-release"
	Killed      = "kill"
	Evicted     = "evict"
	DBGone      = "db-gone"
	ScaledOut   = "scale-out"
	databaseSet = "postgres" // the database server's name on a cluster
)

// Signals that are read off a cluster, or off what a client sees of a shop there.
const (
	Shows    SignalKind = "shows"    // a pod of the service showed the reason Want
	Alone    SignalKind = "alone"    // no other process was started again; with no Of none was
	Flawless SignalKind = "flawless" // no request for the feature failed; with no Of none did
	Flawed   SignalKind = "flawed"   // requests failed
	AsFast   SignalKind = "as-fast"  // the feature's p95 is that of the same run's quiet time
	Books    SignalKind = "books"    // every acknowledged order came to its end, and no invariant is broken
	Replaced SignalKind = "replaced" // no pod is left of those that were to go
	Halted   SignalKind = "halted"   // the rollout stopped at its first new pod, and the old ones served
	Refused  SignalKind = "refused"  // a second eviction was refused while the first pod's successor was not there
	Spread   SignalKind = "spread"   // each replica took its share of the calls
	Absence  SignalKind = "absence"  // what was to be away was
)

// onCluster says what a signal of a cluster is.
func (s Signal) onCluster() string {
	switch s.Kind {
	case Shows:
		return s.Of + " shows " + s.Want
	case Alone:
		if s.Of == "" {
			return "nothing is restarted"
		}
		return "nothing but " + s.Of + " is restarted"
	case Flawless:
		if s.Of == "" {
			return "no request fails"
		}
		return "no request of " + s.Of + " fails"
	case Flawed:
		return "requests fail"
	case AsFast:
		return s.Of + " is as fast as in the quiet time"
	case Books:
		return "the order books are clean"
	case Replaced:
		return "every pod is replaced"
	case Halted:
		return "the rollout stops at its first new pod"
	case Refused:
		return "a second eviction is refused"
	case Spread:
		return "the calls spread over all replicas"
	case Absence:
		return s.Of + " is away"
	}
	return string(s.Kind)
}

// ClusterInputs are the usual inputs for a shop on a cluster, which may be a laptop that does other things too: less
// traffic, and clients patient enough to hear what the shop itself has to say.
func ClusterInputs() Inputs {
	in := Default()
	in.Rate, in.Patience, in.WarmUp = 60, 5*time.Second, 3*time.Second
	return in
}

// times are how long the faults last that a cluster plays, and their number.
type times struct {
	slow, crash, oom, other, absent time.Duration
	slowTimes                       int
}

// OnCluster returns the rows that a shop in Kubernetes can play: those of Table, with the times that a kubelet takes, and
// those that need a cluster. Quick shortens them. A run's length is what it takes: Length is 0.
func OnCluster(in Inputs, quick bool) []Scenario {
	t := times{slow: 10 * time.Second, slowTimes: 4, crash: 45 * time.Second, oom: 30 * time.Second, other: 20 * time.Second, absent: 90 * time.Second}
	if quick {
		t = times{slow: 8 * time.Second, slowTimes: 2, crash: 35 * time.Second, oom: 20 * time.Second, other: 10 * time.Second, absent: 30 * time.Second}
	}
	var rows []Scenario
	for _, s := range Table(in) {
		if s.Name != Exports { // an export route is one of a process that has several
			rows = append(rows, onCluster(s, t))
		}
	}
	return append(rows, operations(in, t)...)
}

// quiet is the time before what goes wrong, in which the normal day is seen.
const quiet = 5 * time.Second

func onCluster(s Scenario, t times) Scenario {
	s.Length, s.Fault.At, s.Expect = 0, s.WarmUp+quiet, partly(s.Expect)
	s.Signals = slices.DeleteFunc(slices.Clone(s.Signals), func(g Signal) bool { return g.Kind == Steady || g.Kind == Bookkept })
	books := Signal{Kind: Books}
	alone := []Signal{{Kind: Alone, Of: string(Recs)}, {Kind: Flawless, Of: string(Checkout)}, books}
	s.Fault.For = t.other
	switch s.Name {
	case Normal:
		s.Signals = append(s.Signals, Signal{Kind: Alone}, Signal{Kind: Flawless}, books)
	case Slow:
		s.Fault.At, s.Fault.For, s.Fault.Pause, s.Fault.Times = s.WarmUp+t.slow, t.slow, t.slow, t.slowTimes
		s.Signals = append(append(s.Signals, alone...), Signal{Kind: AsFast, Of: string(Checkout)})
	case Crash:
		s.Fault.For = t.crash
		s.Signals = append(append(s.Signals, Signal{Kind: Shows, Of: string(Recs), Want: "CrashLoopBackOff"}), alone...)
	case OOM:
		s.Fault.For = t.oom
		s.Signals = append(append(s.Signals, Signal{Kind: Shows, Of: string(Recs), Want: "OOMKilled"}), alone...)
	case Redeployed: // a cluster replaces what a machine restarts, and drains it
		s.About, s.Fault.Kind, s.Fault.For = "recs is shipped anew, by a rollout", Rollout, 0
		s.Signals = []Signal{{Kind: Replaced}, {Kind: Alone}, {Kind: Flawless}, {Kind: Recovers}, books}
		s.Expect = orders()
	case Poison, RetryStorm:
		s.Signals = append(s.Signals, alone...)
	default:
		s.Signals = append(s.Signals, books)
	}
	return s
}

// partly is what is expected when the fault lasts for a part of the run only.
func partly(whole map[string]Expectation) map[string]Expectation {
	expect := map[string]Expectation{}
	for design, e := range whole {
		for _, word := range []*Word{&e.Checkout, &e.Recs} {
			if *word == Down {
				*word = Hurt
			}
		}
		expect[design] = e
	}
	return expect
}

// orders expects orders to be taken as on a normal day, and leaves recommendations to the machine: where it is busy with the
// start of pods, some come too late, and pages do without.
func orders() map[string]Expectation {
	expect := map[string]Expectation{}
	for _, d := range Designs() {
		expect[d.Name] = Expectation{Checkout: Fine}
	}
	return expect
}

// operations are what happens to a shop because somebody works on its cluster.
func operations(in Inputs, t times) []Scenario {
	row := func(name, about string, f Fault, expect map[string]Expectation, signals ...Signal) Scenario {
		f.At = in.WarmUp + quiet
		return Scenario{
			Name: name, About: about, Routes: in.routes(), Workers: in.Workers, WarmUp: in.WarmUp, Fault: f, Expect: expect,
			Hypothesis: hypothesis(name), Signals: append(signals, Signal{Kind: Books}),
		}
	}
	recs := []string{string(Recs)}
	flawless := []Signal{{Kind: Alone}, {Kind: Flawless}}
	return []Scenario{
		row(RolledOut, "every process is replaced, one after the other", Fault{Kind: Rollout}, orders(), append(flawless, Signal{Kind: Replaced})...),
		row(Undrained, "processes are replaced without a drain", Fault{Kind: DrainOff, On: []string{"gateway", string(Checkout)}}, nil,
			Signal{Kind: Replaced}, Signal{Kind: Flawed}, Signal{Kind: Recovers}),
		row(BadRelease, "a release of recs that does not start", Fault{Kind: Unstartable, On: recs, For: t.other / 2}, orders(),
			Signal{Kind: Halted}, Signal{Kind: Alone, Of: string(Recs)}, Signal{Kind: Flawless}, Signal{Kind: Recovers}),
		row(Killed, "every pod is deleted at once, process by process, and servers", Fault{Kind: Kill}, nil, Signal{Kind: Replaced}, Signal{Kind: Recovers}),
		row(Evicted, "pods are evicted, as for the drain of a node", Fault{Kind: Evict, On: []string{string(Recs), string(Checkout)}}, orders(),
			append(flawless, Signal{Kind: Refused})...),
		row(DBGone, "PostgreSQL is away for "+t.absent.String(), Fault{Kind: Absent, On: []string{databaseSet}, For: t.absent}, nil,
			Signal{Kind: Absence, Of: databaseSet}, Signal{Kind: Alone}, Signal{Kind: Recovers}),
		row(ScaledOut, "recs gets two replicas more", Fault{Kind: Grow, On: recs}, orders(), append(flawless, Signal{Kind: Spread})...),
	}
}

// Bites reports whether the fault is one that a service does to itself, rather than something that is done to its pods.
func (f Fault) Bites() bool { return slices.Contains(fault.Kinds(), f.Kind) }

// Proof returns the rows that show in about five minutes, to somebody who has just installed the shop, that what goes wrong
// stays where it is.
func Proof(in Inputs) []Scenario {
	var rows []Scenario
	table := OnCluster(in, true)
	for _, name := range []string{Crash, OOM, Slow, RolledOut, Killed} {
		s, _ := Find(table, name, func(s Scenario) string { return s.Name })
		if name == RolledOut {
			s.About, s.Fault.On = "recs and checkout are replaced, one after the other", []string{string(Recs), string(Checkout)}
		}
		rows = append(rows, s)
	}
	return rows
}
