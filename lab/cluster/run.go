package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/watertight/lab/result"
	"example.com/watertight/lab/scenario"
)

// Options are how scenarios are played.
type Options struct {
	Image    string // lab's, for the pods of the load and the books; empty: that of the import job
	Seed     uint64
	Quick    bool
	Releaser Releaser // nil: the Deployments are edited
	// Say gets a line for each step. It may be nil.
	Say func(line string)
}

// Run plays scenarios on one shop.
type Run struct {
	Shop *Shop

	design   string
	image    string
	seed     uint64
	quick    bool
	releaser Releaser
	say      func(string)
	file     *result.File
}

// Begin looks at the shop: it must be there and answer. Every play adds to the run's result.
func Begin(ctx context.Context, s *Shop, o Options) (*Run, error) {
	r := &Run{Shop: s, image: o.Image, seed: o.Seed, quick: o.Quick, releaser: o.Releaser, say: o.Say}
	if r.say == nil {
		r.say = func(string) {}
	}
	if r.releaser == nil {
		r.releaser = newEdits(s)
	}
	if _, err := s.target(ctx); err != nil {
		return nil, err
	}
	var err error
	if r.image == "" {
		if r.image, err = s.labImage(ctx); err != nil {
			return nil, err
		}
	}
	var st status
	err = await(ctx, time.Minute, "the shop answers", func(ctx context.Context) (ok bool, err error) {
		st, err = s.status(ctx)
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	r.design = st.Design
	r.file = &result.File{
		Kind: result.Kind, Target: result.Cluster, Started: time.Now().Truncate(time.Second), Quick: o.Quick, Seed: o.Seed,
		Versions: map[string]string{"watertight": st.Version}, Inputs: map[string]string{}, Warnings: []string{},
	}
	return r, r.describe(ctx)
}

// Design is the shop's, as it says itself.
func (r *Run) Design() string { return r.design }

// describe writes down what the cluster is.
func (r *Run) describe(ctx context.Context) error {
	version, err := r.Shop.client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the cluster's version: %w", err)
	}
	r.file.Versions["kubernetes"] = version.GitVersion
	r.file.Versions["go"] = strings.TrimPrefix(runtime.Version(), "go")
	nodes, err := r.Shop.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	m := &r.file.Machine
	m.Nodes = len(nodes.Items)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		m.OS, m.Arch = n.Status.NodeInfo.OperatingSystem, n.Status.NodeInfo.Architecture
		m.CPUs += int(n.Status.Capacity.Cpu().Value())
		m.MemoryMB += n.Status.Capacity.Memory().Value() >> 20
	}
	return nil
}

// Play plays a scenario, adds it to the result, and returns its cell.
func (r *Run) Play(ctx context.Context, s *scenario.Scenario) (*result.Cell, error) {
	r.say(fmt.Sprintf("%s: %s", s.Name, s.About))
	c, err := r.play(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	r.file.Cells = append(r.file.Cells, c)
	r.file.Judge()
	r.file.Took = seconds(time.Since(r.file.Started))
	played := &r.file.Cells[len(r.file.Cells)-1]
	r.say("  " + played.Verdict())
	return played, nil
}

// Result is what was played so far.
func (r *Run) Result() *result.File { return r.file }

// All plays the scenarios one after the other. One that cannot be played is no reason not to play the next; their errors
// come joined. It stops early when ctx ends.
func (r *Run) All(ctx context.Context, scenarios []scenario.Scenario) error {
	var errs []error
	for i := range scenarios {
		if _, err := r.Play(ctx, &scenarios[i]); err != nil {
			errs = append(errs, err)
			r.say("  not played: " + err.Error())
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}
