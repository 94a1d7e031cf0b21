package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"sync"
	"time"
)

// Arrival is a request and when it is meant to start, counted from the start of the run.
type Arrival struct {
	At      time.Duration
	Request Request
}

// Options are how requests are sent and counted, whatever they are.
type Options struct {
	Timeout       time.Duration // when a client gives a try up
	ClientRetries int           // how often clients try again, at once
	// MaxInFlight bounds requests that wait, and with them memory and connections: what is meant to start beyond it is counted
	// as lost and never sent. 0 leaves room for every client to wait as long as it ever does.
	MaxInFlight int
	Warmup      time.Duration // arrivals before it are sent, and not counted
	LateAfter   time.Duration // a request that starts later than this is late: the generator's fault, not the shop's
	// End is when what is counted ends; 0 is when the arrivals do.
	End time.Duration
	// Acked, when set, gets the id of each order as soon as it is acknowledged, one a line, from warm-up on. A write that
	// fails ends the run: an id that is missing would be a lost order that nobody sees.
	Acked io.Writer
	// Progress, when set, is told a few times a second how the run goes.
	Progress func(Progress)
}

// Validate names every field that cannot be.
func (o Options) Validate() error {
	var errs []error
	refuse := func(when bool, format string, args ...any) {
		if when {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.Timeout <= 0 || o.Timeout > time.Hour, "timeout %v: must be more than 0 and at most %v", o.Timeout, time.Hour)
	refuse(o.ClientRetries < 0 || o.ClientRetries > maxRetries, "client retries %d: must be 0 to %d", o.ClientRetries, maxRetries)
	refuse(o.MaxInFlight < 0 || o.MaxInFlight > maxInFlight, "max in flight %d: must be 0 (automatic) to %d", o.MaxInFlight, maxInFlight)
	refuse(o.Warmup < 0, "warmup %v: must be 0 or more", o.Warmup)
	refuse(o.LateAfter <= 0, "late after %v: must be more than 0", o.LateAfter)
	return errors.Join(errs...)
}

// inFlightFor is Little's law, L = λW, with W the longest that a client waits, and six standard deviations of a Poisson
// number above it.
func inFlightFor(rate float64, o Options) int {
	mean := rate * o.Timeout.Seconds() * float64(1+o.ClientRetries)
	return int(min(mean+6*math.Sqrt(mean)+50, maxInFlight))
}

// replayInFlight is the automatic limit where the rate is not known.
const replayInFlight = 4096

// Drive sends each request when it is due, whatever has become of those before, and returns what became of all. The
// arrivals are in order of time. When ctx ends, no more are sent, and the result so far is returned with ctx's cause once
// those in flight have ended.
func Drive(ctx context.Context, target Target, arrivals iter.Seq[Arrival], o Options) (Result, error) {
	if err := o.Validate(); err != nil {
		return Result{}, err
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = replayInFlight
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	clock, err := newAlarm(ctx)
	if err != nil {
		return Result{}, err
	}
	defer clock.close()
	d := &driver{Options: o, client: newClient(target), stop: stop, alarm: clock, recorder: newRecorder(o), start: time.Now()}
	defer d.client.close()

	watched := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(watched)
		d.watch(over)
	}()
	end := d.send(ctx, arrivals)
	d.flying.Wait()
	close(over)
	<-watched
	result := d.recorder.result(end)
	result.Started = d.start
	result.Generator.Connections = d.client.dialed
	result.Interrupted = ctx.Err() != nil
	result.Warnings = result.doubts()
	return result, context.Cause(ctx)
}

// driver is one run under way.
type driver struct {
	Options
	client   *client
	alarm    *alarm
	recorder *recorder
	start    time.Time
	stop     context.CancelCauseFunc
	flying   sync.WaitGroup
	ackedMu  sync.Mutex
}

// send starts what is due until the arrivals or ctx end, and returns when that was.
func (d *driver) send(ctx context.Context, arrivals iter.Seq[Arrival]) (end time.Duration) {
	for a := range arrivals {
		if !d.alarm.wait(ctx, d.start.Add(a.At)) {
			return min(time.Since(d.start), max(d.End, a.At))
		}
		end = max(end, a.At)
		if !d.recorder.arrive(a, d.MaxInFlight) {
			continue
		}
		d.flying.Go(func() { d.play(ctx, a) })
	}
	if d.End == 0 {
		return end
	}
	d.alarm.wait(ctx, d.start.Add(d.End))
	return min(time.Since(d.start), d.End)
}

// play is one client: it sends, waits, gives up, and tries again if it is of that kind.
func (d *driver) play(ctx context.Context, a Arrival) {
	intended := d.start.Add(a.At)
	s := sample{arrival: a, delay: time.Since(intended)}
	for {
		got, err := d.client.do(a.Request.wire, time.Now().Add(d.Timeout))
		s.tries++
		s.outcome, s.code = judge(a.Request.Operation, got, err)
		if s.outcome.again(got.status) && s.tries <= d.ClientRetries && ctx.Err() == nil {
			continue
		}
		s.latency = time.Since(intended)
		s.replayed = got.replayed
		if got.order != "" {
			d.acknowledge(got.order)
		}
		d.recorder.settle(s)
		return
	}
}

func (d *driver) acknowledge(order string) {
	if d.Acked == nil {
		return
	}
	d.ackedMu.Lock()
	defer d.ackedMu.Unlock()
	if _, err := io.WriteString(d.Acked, order+"\n"); err != nil {
		d.stop(fmt.Errorf("write acknowledged order %s: %w", order, err))
	}
}

// watchEvery is how often progress is told and the time series brought up to date.
const watchEvery = 200 * time.Millisecond

func (d *driver) watch(over <-chan struct{}) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-over:
			return
		case <-ticker.C:
			now := time.Since(d.start)
			progress := d.recorder.tick(now)
			if d.Progress != nil {
				progress.End = d.End
				d.Progress(progress)
			}
		}
	}
}
