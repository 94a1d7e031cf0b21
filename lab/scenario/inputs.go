package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/alecthomas/kong"
)

// Inputs are the numbers that the table is made of. The tags hold the defaults, which are those of the experiment's
// published description; as an embedded struct, each field is a flag of a command.
type Inputs struct {
	Rate          float64 `default:"200" group:"Traffic" help:"Requests per second in all, arriving at random (Poisson)."`
	CheckoutShare float64 `default:"0.2" group:"Traffic" help:"Share of the requests that are checkouts."`
	SearchShare   float64 `default:"0.4" group:"Traffic" help:"Share of the requests that are searches."`
	RecsShare     float64 `default:"0.4" group:"Traffic" help:"Share of the requests that are recommendations."`

	CheckoutTime time.Duration `default:"20ms" group:"Service times" help:"Base of a checkout's service time."`
	SearchTime   time.Duration `default:"10ms" group:"Service times" help:"Base of a search's service time."`
	RecsTime     time.Duration `default:"15ms" group:"Service times" help:"Base of a recommendation's service time."`
	Spread       float64       `default:"0.5" group:"Service times" help:"Service times are drawn evenly from base x (1 - spread) to base x (1 + spread)."`
	TailShare    float64       `default:"0.03" group:"Service times" help:"Share of the requests that take longer."`
	TailFactor   float64       `default:"3" group:"Service times" help:"How many times longer those take."`

	Workers         int `default:"16" group:"Workers" help:"Workers of the shared pool."`
	CheckoutWorkers int `default:"4" group:"Workers" help:"Workers of checkout, where it has its own."`
	SearchWorkers   int `default:"6" group:"Workers" help:"Workers of search, where it has its own."`
	RecsWorkers     int `default:"6" group:"Workers" help:"Workers of recs, where it has its own."`
	Queue           int `default:"0" group:"Workers" help:"Places in the queue of each pool; 0 is no limit."`

	GatewayTime time.Duration `default:"200us" group:"Network" help:"The gateway's own work on a request, where there is a gateway."`
	HopMin      time.Duration `default:"800us" group:"Network" help:"Shortest way from process to process."`
	HopMax      time.Duration `default:"1600us" group:"Network" help:"Longest way from process to process."`
	Patience    time.Duration `default:"1s" group:"Traffic" help:"When a client gives up."`

	Duration time.Duration `default:"20s" group:"Run" help:"Length of a run."`
	WarmUp   time.Duration `default:"2s" group:"Run" help:"Requests that arrive before this are not counted."`
	FaultAt  time.Duration `default:"2s" group:"Run" help:"When the fault begins."`

	SlowDelay       time.Duration `default:"2s" group:"Faults" help:"slow, retry-storm: what a recommendation takes."`
	CrashAfter      time.Duration `default:"50ms" group:"Faults" help:"crash, poison: how long after its start a request ends the process."`
	Restart         time.Duration `default:"2s" group:"Faults" help:"crash, oom, poison: how long the process is away."`
	RedeployAt      time.Duration `default:"8s" group:"Faults" help:"redeploy: when."`
	RedeployWhole   time.Duration `default:"4s" group:"Faults" help:"redeploy: how long the whole build is away."`
	RedeployService time.Duration `default:"1500ms" group:"Faults" help:"redeploy: how long one service is away."`
	OOMCalls        int           `name:"oom-calls" default:"80" group:"Faults" help:"oom: how many leaking requests use the memory up."`
	PoisonShare     float64       `default:"0.02" group:"Faults" help:"poison: share of the recommendations that are for the poisonous product."`
	Retries         int           `default:"3" group:"Faults" help:"retry-storm: how often a client tries again, at once."`
	DBDelay         time.Duration `name:"db-delay" default:"2s" group:"Faults" help:"shared-db: how long every request waits for the database."`
	CPUFactor       float64       `name:"cpu-factor" default:"3" group:"Faults" help:"cpu: how many times longer everything on the node takes."`

	ExportRate          float64       `default:"20" group:"Export" help:"Exports per second, on top of the other traffic."`
	ExportTime          time.Duration `default:"500ms" group:"Export" help:"Base of an export's service time while it is well."`
	ExportDelay         time.Duration `default:"10s" group:"Export" help:"What an export takes when it is not."`
	ExportSharedWorkers int           `default:"200" group:"Export" help:"Workers in all; all share them in the shared pool."`
	ExportWorkers       int           `default:"16" group:"Export" help:"Workers of the export route, where it has its own."`
	ExportQueue         int           `default:"32" group:"Export" help:"Places in the queue of the export route's own pool."`
	ExportPatience      time.Duration `default:"15s" group:"Export" help:"When a client gives an export up."`
	ExportDuration      time.Duration `default:"60s" group:"Export" help:"Length of a run: 200 workers do not fill in 20 s."`

	SyncTimeout  time.Duration `default:"1s" group:"Synchronous call" help:"How long a checkout waits for recs."`
	SyncFallback bool          `group:"Synchronous call" help:"A checkout goes on without recs instead of failing."`
}

// Default returns the inputs that the tags give.
func Default() Inputs {
	var in Inputs
	if err := kong.ApplyDefaults(&in); err != nil {
		panic("scenario: a default in a tag is malformed: " + err.Error()) // the tags are constants, and a test reads them
	}
	return in
}

// maxRun bounds a run, so that times in nanoseconds can be added up without a thought.
const maxRun = 24 * time.Hour

// Validate returns what is wrong, joined; each error starts with the flag's name.
func (in Inputs) Validate() error {
	return errors.Join(in.validateShares(), in.validateTimes(), in.validateCounts())
}

func (in Inputs) validateShares() error {
	var errs []error
	for name, v := range in.fractions() {
		if math.IsNaN(v) || v < 0 || v > 1 {
			errs = append(errs, fmt.Errorf("--%s: must be between 0 and 1, got %v", name, v))
		}
	}
	if sum := in.CheckoutShare + in.SearchShare + in.RecsShare; math.Abs(sum-1) > 1e-9 {
		errs = append(errs, fmt.Errorf("--checkout-share, --search-share, --recs-share: must add up to 1, got %v", sum))
	}
	for name, v := range map[string]float64{"rate": in.Rate, "export-rate": in.ExportRate} {
		if math.IsNaN(v) || v <= 0 || v > 1e6 {
			errs = append(errs, fmt.Errorf("--%s: must be more than 0 and at most 1000000 a second, got %v", name, v))
		}
	}
	for name, v := range map[string]float64{"tail-factor": in.TailFactor, "cpu-factor": in.CPUFactor} {
		if math.IsNaN(v) || v < 1 || v > 1000 {
			errs = append(errs, fmt.Errorf("--%s: must be between 1 and 1000, got %v", name, v))
		}
	}
	return errors.Join(sorted(errs)...)
}

func (in Inputs) fractions() map[string]float64 {
	return map[string]float64{
		"checkout-share": in.CheckoutShare, "search-share": in.SearchShare, "recs-share": in.RecsShare,
		"spread": in.Spread, "tail-share": in.TailShare, "poison-share": in.PoisonShare,
	}
}

func (in Inputs) validateTimes() error {
	var errs []error
	positive := map[string]time.Duration{
		"checkout-time": in.CheckoutTime, "search-time": in.SearchTime, "recs-time": in.RecsTime, "patience": in.Patience,
		"duration": in.Duration, "slow-delay": in.SlowDelay, "db-delay": in.DBDelay, "export-time": in.ExportTime,
		"export-delay": in.ExportDelay, "export-patience": in.ExportPatience, "export-duration": in.ExportDuration,
		"sync-timeout": in.SyncTimeout, "restart": in.Restart, "redeploy-whole": in.RedeployWhole, "redeploy-service": in.RedeployService,
	}
	for name, d := range positive {
		if d <= 0 || d > maxRun {
			errs = append(errs, fmt.Errorf("--%s: must be more than 0 and at most %v, got %v", name, maxRun, d))
		}
	}
	zeroToo := map[string]time.Duration{
		"gateway-time": in.GatewayTime, "hop-min": in.HopMin, "hop-max": in.HopMax, "warm-up": in.WarmUp, "fault-at": in.FaultAt,
		"crash-after": in.CrashAfter, "redeploy-at": in.RedeployAt,
	}
	for name, d := range zeroToo {
		if d < 0 || d > maxRun {
			errs = append(errs, fmt.Errorf("--%s: must be between 0 and %v, got %v", name, maxRun, d))
		}
	}
	if in.HopMax < in.HopMin {
		errs = append(errs, fmt.Errorf("--hop-max: must not be below --hop-min, got %v and %v", in.HopMax, in.HopMin))
	}
	if in.WarmUp >= min(in.Duration, in.ExportDuration) {
		errs = append(errs, fmt.Errorf("--warm-up: must end before --duration and --export-duration, got %v", in.WarmUp))
	}
	return errors.Join(sorted(errs)...)
}

// maxWorkers is the most that a pool may have: more than any process runs.
const maxWorkers = 60_000

func (in Inputs) validateCounts() error {
	var errs []error
	workers := map[string]int{
		"workers": in.Workers, "checkout-workers": in.CheckoutWorkers, "search-workers": in.SearchWorkers,
		"recs-workers": in.RecsWorkers, "export-workers": in.ExportWorkers, "export-shared-workers": in.ExportSharedWorkers,
		"oom-calls": in.OOMCalls,
	}
	for name, n := range workers {
		if n < 1 || n > maxWorkers {
			errs = append(errs, fmt.Errorf("--%s: must be between 1 and %d, got %d", name, maxWorkers, n))
		}
	}
	for name, n := range map[string]int{"queue": in.Queue, "export-queue": in.ExportQueue} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("--%s: must not be negative, got %d", name, n))
		}
	}
	if in.Retries < 0 || in.Retries > 10 {
		errs = append(errs, fmt.Errorf("--retries: must be between 0 and 10, got %d", in.Retries))
	}
	if in.ExportSharedWorkers <= in.ExportWorkers+len(in.routes()) {
		errs = append(errs, fmt.Errorf("--export-shared-workers: must leave workers for the other features beside --export-workers, got %d",
			in.ExportSharedWorkers))
	}
	return errors.Join(sorted(errs)...)
}

// Flags returns every input under the name of its flag.
func (in Inputs) Flags() map[string]string {
	flags := map[string]string{}
	value := reflect.ValueOf(in)
	for i := range value.NumField() {
		field := value.Type().Field(i)
		flags[cmp.Or(field.Tag.Get("name"), dashed(field.Name))] = fmt.Sprint(value.Field(i))
	}
	return flags
}

// dashed writes a field's name as kong does: SlowDelay is slow-delay.
func dashed(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
