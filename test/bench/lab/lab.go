// Package lab measures the lab's own speed: how many events its simulation plays beside a bare heap of events, and whether its load
// generator keeps its schedule, at what processor time beside vegeta's.
package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
	"golang.org/x/sys/unix"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/sim"
	"example.com/watertight/lab/statedir"
	"example.com/watertight/test/bench/process"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

// rate is what lab load is to send in a second from one core, and lateShare how many per cent of it may start over a millisecond late.
const (
	rate      = 10_000
	lateShare = 1
)

type rows struct {
	seeds     int // simulated each time
	length    time.Duration
	dir       string
	environ   []string
	notes     io.Writer
	program   string // lab
	addr      string // of the server
	server    *process.Process
	simulated *table.Row
	late, cpu *table.Row
}

// Start builds lab and starts the server that answers its load.
func Start(ctx context.Context, r *suite.Run) (_ suite.Part, err error) {
	l := &rows{seeds: 40, length: 8 * time.Second, environ: r.Environ, notes: r.Notes}
	if r.Quick {
		l.seeds, l.length = 10, 2*time.Second
	}
	l.simulated = r.Row("lab", "lab sim, all scenarios in all designs", "container/heap alone", "events/CPU s", table.AtLeast(1))
	load := "lab load, " + table.Number(rate) + " requests/s from one core"
	l.late = r.Row("lab", load+", started late", "limit", "%", table.Within())
	// Where the machine cannot hold the rate both open connections by the thousand, and then the ratio is anything.
	l.cpu = r.Row("lab", load+", processor time", "vegeta", "µs/request", table.None())
	if l.dir, err = os.MkdirTemp("", "watertight-bench-lab-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.program, err = Build(ctx, l.dir); err != nil {
		return nil, err
	}
	if l.addr, err = process.FreeAddr(ctx); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if l.server, err = process.Start(l.dir, "server", []string{self, Aside}, addrVariable+"="+l.addr); err != nil {
		return nil, err
	}
	return l, l.server.Ready(ctx, "http://"+l.addr+"/api/v1/products")
}

// Build builds the command lab in dir.
func Build(ctx context.Context, dir string) (program string, err error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	root, err := statedir.FindRoot(here)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "lab")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./lab/cmd/lab")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build lab: %w\n%s", err, out)
	}
	return program, nil
}

// Close ends the server.
func (l *rows) Close() (err error) {
	if l.server != nil {
		err = l.server.Stop()
	}
	return errors.Join(err, os.RemoveAll(l.dir))
}

// Round measures both.
func (l *rows) Round(ctx context.Context, n int) error {
	if err := l.simulate(ctx, n); err != nil {
		return err
	}
	return l.load(ctx)
}

// simulate plays seeds, and then as many events without a simulation.
func (l *rows) simulate(ctx context.Context, n int) error {
	in := scenario.Default()
	options := sim.Options{Inputs: in, Scenarios: scenario.Table(in), Designs: scenario.Designs()}
	var events int64
	ours, err := spent(func() error {
		for seed := range l.seeds {
			options.Seed = uint64(n*l.seeds + seed)
			cells, err := sim.Run(ctx, options)
			if err != nil {
				return err
			}
			for _, c := range cells {
				events += c.Events
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	theirs, err := spent(func() error { bareHeap(events); return nil })
	if err != nil {
		return err
	}
	l.simulated.Add(float64(events)/ours.Seconds(), float64(events)/theirs.Seconds())
	return nil
}

// load has lab load, from one core, and vegeta, from all, send the same rate to the same server. A request that is not answered counts as
// one that started late.
func (l *rows) load(ctx context.Context) error {
	command := exec.CommandContext(ctx, l.program, "load", "--target", "http://"+l.addr, "--rate", strconv.Itoa(rate), "--arrivals", "constant",
		"--mix", "recs=1", "--duration", l.length.String(), "--warmup", "500ms", "--output", "json")
	command.Env, command.Stderr = append(slices.Clone(l.environ), "GOMAXPROCS=1"), l.notes
	out, err := command.Output()
	if err != nil {
		return fmt.Errorf("lab load: %w", err)
	}
	var result load.Result
	if err := json.Unmarshal(out, &result); err != nil {
		return fmt.Errorf("lab load: %w", err)
	}
	due, ok := result.Total.Requests, result.Total.Outcomes.OK
	missed := result.Generator.Late + due - ok // what was not sent was not answered
	l.late.Add(100*float64(missed)/float64(max(1, due)), lateShare)
	took := command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	peer, answered, err := l.attack()
	if err != nil {
		return err
	}
	if ok == 0 || answered == 0 {
		return errors.New("the server answered nobody")
	}
	sent := rate * l.length.Seconds()
	l.cpu.Add(float64(took.Microseconds())/sent, float64(peer.Microseconds())/sent)
	return nil
}

// attack is the same load from vegeta, and what it took.
func (l *rows) attack() (took time.Duration, answered uint64, err error) {
	attacker := vegeta.NewAttacker(vegeta.Timeout(time.Second), vegeta.MaxWorkers(10_000))
	target := vegeta.NewStaticTargeter(vegeta.Target{Method: http.MethodGet, URL: "http://" + l.addr + recommendations + "?product_id=P01"})
	took, err = spent(func() error {
		var m vegeta.Metrics
		for result := range attacker.Attack(target, vegeta.Rate{Freq: rate, Per: time.Second}, l.length, "peer") {
			m.Add(result)
			if result.Code == http.StatusOK {
				answered++
			}
		}
		m.Close()
		return nil
	})
	return took, answered, err
}

// spent is the processor time that this process takes while it does the work: on a machine with other work, time by the clock is
// anything.
func spent(work func() error) (time.Duration, error) {
	before, err := processorTime()
	if err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	after, err := processorTime()
	return after - before, err
}

func processorTime() (time.Duration, error) {
	var usage unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}
