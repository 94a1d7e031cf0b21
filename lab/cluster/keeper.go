package cluster

import (
	"context"
	"fmt"
	"time"
)

// Restart ships a process anew, as kubectl rollout restart does, and does not wait for it.
func (s *Shop) Restart(ctx context.Context, process string) error {
	const patch = `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`
	if err := s.patch(ctx, "deployments", process, fmt.Sprintf(patch, time.Now().Format(time.RFC3339Nano))); err != nil {
		return fmt.Errorf("restart %s: %w", process, err)
	}
	return nil
}

// Restarts is how often the containers of each process were started again, in the pods that are there.
func (s *Shop) Restarts(ctx context.Context) (map[string]int, error) {
	pods, err := s.pods(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for i := range pods {
		counts[component(&pods[i])] += restarts(&pods[i])
	}
	return counts, nil
}
