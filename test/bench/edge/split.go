package edge

import (
	"context"
	"errors"
	"time"

	"example.com/watertight/test/bench/process"
	"example.com/watertight/test/bench/stage"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

// splitLimit is the most that the split may add to the median of an order, in milliseconds.
const splitLimit = 0.5

// split is what it costs to have the services elsewhere: one caller places an order at a time, at the gateway and at the same edge
// with its services inside, and at a bare handler with and without a gRPC call.
type split struct {
	stage   *stage.Stage
	turns   int              // in each round
	targets []*stage.Gateway // gateway, one process, bare hop, bare
	hops    *table.Row
	limit   *table.Row
}

// blockOf is how many orders each target gets in its turn.
const blockOf = 25

// StartSplit prepares the part.
func StartSplit(ctx context.Context, r *suite.Run) (_ suite.Part, err error) {
	s := &split{
		turns: 60,
		hops:  r.Row("split", "split, p50 added to an order", "a bare HTTP handler's gRPC call", "ms", table.AtMost(2.5)),
		limit: r.Row("split", "the same", "limit", "ms", table.Within()),
	}
	if r.Quick {
		s.turns = 15
	}
	if s.stage, err = stage.Open(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stage.Close())
		}
	}()
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	_, err = s.medians(ctx, s.turns/3) // to warm up
	return s, err
}

func (s *split) start(ctx context.Context) error {
	services, err := process.FreeAddr(ctx)
	if err != nil {
		return err
	}
	bare, err := process.FreeAddr(ctx)
	if err != nil {
		return err
	}
	if _, err := s.stage.Beside(ctx, "services", "services", "GRPC_ADDR="+services, "BARE_ADDR="+bare); err != nil {
		return err
	}
	target := "static:///" + services
	ours, err := s.stage.Ours(ctx, "gateway", append(stage.Patient(), "CHECKOUT_ADDR="+target, "SEARCH_ADDR="+target, "RECS_ADDR="+target)...)
	if err != nil {
		return err
	}
	s.targets = append(s.targets, ours)
	for _, kind := range []string{"one process", "bare hop", "bare"} {
		g, err := s.stage.Beside(ctx, kind, kind, "BARE_ADDR="+bare, "GOGC=400") // as the gateway sets it for itself
		if err != nil {
			return err
		}
		s.targets = append(s.targets, g)
	}
	return nil
}

func (s *split) Close() error { return s.stage.Close() }

// Round measures the four, taking turns.
func (s *split) Round(ctx context.Context, _ int) error {
	median, err := s.medians(ctx, s.turns)
	if err != nil {
		return err
	}
	added, bare := median[0]-median[1], median[2]-median[3]
	s.hops.Add(added, bare)
	s.limit.Add(added, splitLimit)
	return nil
}

// medians returns the median time of an order at each target, in milliseconds.
func (s *split) medians(ctx context.Context, turns int) ([]float64, error) {
	took := make([][]float64, len(s.targets))
	for range turns {
		for i, target := range s.targets {
			for range blockOf {
				start := time.Now()
				if err := target.Order(ctx); err != nil {
					return nil, err
				}
				took[i] = append(took[i], float64(time.Since(start))/float64(time.Millisecond))
			}
		}
	}
	medians := make([]float64, len(took))
	for i, all := range took {
		medians[i] = table.Median(all)
	}
	return medians, nil
}
