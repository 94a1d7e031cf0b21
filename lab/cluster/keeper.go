package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Restart ships a process anew, as kubectl rollout restart does, and does not wait for it.
func (s *Shop) Restart(ctx context.Context, process string) error {
	const patch = `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`
	if err := s.patch(ctx, "deployments", process, fmt.Sprintf(patch, time.Now().Format(time.RFC3339Nano))); err != nil {
		return fmt.Errorf("restart %s: %w", process, err)
	}
	return nil
}

// Keeper restarts a shop's processes and counts their starts, as a game day wants it. It may be used by several goroutines.
type Keeper struct {
	*Shop

	mu     sync.Mutex
	starts map[types.UID]starts // of each pod that was ever seen
}

type starts struct {
	process string
	count   int
}

// Keeper returns one that has counted nothing yet.
func (s *Shop) Keeper() *Keeper { return &Keeper{Shop: s, starts: map[types.UID]starts{}} }

// Restarts is how often each process was seen to start: a pod that takes another's place counts as well as a container that is
// started again, and what has left is not forgotten. Only differences between two counts say anything.
func (k *Keeper) Restarts(ctx context.Context) (map[string]int, error) {
	pods, err := k.pods(ctx)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range pods {
		k.starts[pods[i].UID] = starts{component(&pods[i]), 1 + restarts(&pods[i])}
	}
	counts := map[string]int{}
	for _, s := range k.starts {
		counts[s.process] += s.count
	}
	return counts, nil
}
