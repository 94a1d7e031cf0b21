package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"example.com/watertight/lab/scenario"
)

const (
	moreReplicas = 2
	// fairShare is the least that each of three replicas must get, of the calls in a window.
	fairShare    = 0.15
	spreadWithin = time.Minute
	spreadWindow = 8 * time.Second
	// spreadCalls is the fewest calls that a window may be judged by.
	spreadCalls = 60
)

// grow gives a process two replicas more, and waits until each of all takes its share of the calls.
func (s *Shop) grow(ctx context.Context, on []string, f found) (err error) {
	processes, err := s.processes(ctx, on)
	if err != nil {
		return err
	}
	d := &processes[0]
	before := *d.Spec.Replicas
	if err := s.scale(ctx, "deployments", d.Name, before+moreReplicas); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, s.back(ctx, "deployments", d.Name, before))
		if err == nil { // those that leave drain, and that is part of the story
			err = s.awaitShrunk(ctx, d.Name, int(before))
		}
	}()
	began := time.Now()
	var last string
	var windows []map[string]float64
	err = await(ctx, spreadWithin, "the calls spread", func(ctx context.Context) (bool, error) {
		counts, err := s.calls(ctx, d.Name)
		if err != nil {
			return false, err
		}
		windows = append(windows, counts)
		shares, ok := share(windows, int(before)+moreReplicas)
		last = shares
		return ok, nil
	})
	took := time.Since(began).Seconds()
	if errors.Is(err, errLate) || (err != nil && ctx.Err() == nil) {
		f.notef(scenario.Spread, false, "not within %.0f s: %s", took, last)
		return nil
	}
	if err == nil {
		f.notef(scenario.Spread, true, "after %.0f s: %s", took, last)
	}
	return err
}

func (s *Shop) awaitShrunk(ctx context.Context, name string, want int) error {
	return await(ctx, patience, name+" has its replicas as before", func(ctx context.Context) (bool, error) {
		pods, err := s.podsOf(ctx, name)
		return len(pods) == want, err
	})
}

// share looks at the counts of the last window: whether there are as many replicas as wanted, and each got its share.
func share(looks []map[string]float64, replicas int) (text string, ok bool) {
	back := int(spreadWindow / lookEvery)
	if len(looks) <= back {
		return "too few looks", false
	}
	now, then := looks[len(looks)-1], looks[len(looks)-1-back]
	total := 0.0
	for pod, n := range now {
		total += n - then[pod]
	}
	if total < spreadCalls || len(now) < replicas {
		return fmt.Sprintf("%.0f calls, %d replicas", total, len(now)), false
	}
	var shares []string
	ok = true
	for pod, n := range now {
		part := (n - then[pod]) / total
		shares = append(shares, fmt.Sprintf("%.0f %%", 100*part))
		ok = ok && part >= fairShare
	}
	return strings.Join(shares, ", "), ok
}

// calls counts the calls that each ready pod of a process has served since its start, but for probes.
func (s *Shop) calls(ctx context.Context, process string) (map[string]float64, error) {
	pods, err := s.podsOf(ctx, process)
	if err != nil {
		return nil, err
	}
	counts := map[string]float64{}
	for i := range pods {
		if !ready(&pods[i]) {
			continue
		}
		page, err := s.get(ctx, s.proxied("pods/"+pods[i].Name+":"+adminPort(&pods[i])).JoinPath("metrics"))
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", pods[i].Name, err)
		}
		counts[pods[i].Name] = served(page)
	}
	return counts, nil
}

func adminPort(p *corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == "admin" {
				return strconv.Itoa(int(port.ContainerPort))
			}
		}
	}
	return "9090"
}

// served adds up the calls of the shop's own methods in a page of Prometheus's text form.
func served(page []byte) float64 {
	const calls = "rpc_server_call_duration_seconds_count{"
	sum := 0.0
	lines := bufio.NewScanner(bytes.NewReader(page))
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, calls) || strings.Contains(line, `"grpc.`) {
			continue
		}
		if _, value, ok := strings.Cut(line, "} "); ok {
			if n, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
				sum += n
			}
		}
	}
	return sum
}
