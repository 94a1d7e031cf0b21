package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"example.com/watertight/lab/scenario"
)

// Releaser ships a version of a process that ends as it starts, and takes it back. It does not wait for a rollout.
type Releaser interface {
	Break(ctx context.Context, process string) error
	Undo(ctx context.Context, process string) error
}

// BrokenVariable and BrokenValue are what a release of a process that does not start has in its environment.
const (
	BrokenVariable = "LOG_LEVEL"
	BrokenValue    = "unknown"
)

// edits is the Releaser of a shop that kubectl installed: it edits the Deployment, and puts its old template back.
type edits struct {
	shop *Shop
	old  map[string]corev1.PodTemplateSpec
}

func newEdits(s *Shop) *edits { return &edits{s, map[string]corev1.PodTemplateSpec{}} }

func (e *edits) Break(ctx context.Context, process string) error {
	return e.shop.edit(ctx, process, func(d *appsv1.Deployment) {
		e.old[process] = *d.Spec.Template.DeepCopy()
		for i := range d.Spec.Template.Spec.Containers {
			c := &d.Spec.Template.Spec.Containers[i]
			c.Env = append(c.Env, corev1.EnvVar{Name: BrokenVariable, Value: BrokenValue})
		}
	})
}

func (e *edits) Undo(ctx context.Context, process string) error {
	return e.shop.edit(ctx, process, func(d *appsv1.Deployment) { d.Spec.Template = e.old[process] })
}

// edit changes a Deployment, again when somebody else did so meanwhile.
func (s *Shop) edit(ctx context.Context, name string, change func(*appsv1.Deployment)) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		d, err := s.client.AppsV1().Deployments(s.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(d)
		_, err = s.client.AppsV1().Deployments(s.Namespace).Update(ctx, d, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	if err != nil {
		return fmt.Errorf("change %s: %w", name, err)
	}
	return nil
}

// releaseBroken ships a process in a version that does not start, looks what becomes of it and of the old pods for a time,
// and takes it back.
func (s *Shop) releaseBroken(ctx context.Context, r Releaser, on []string, hold time.Duration, f found) (err error) {
	processes, err := s.processes(ctx, on)
	if err != nil {
		return err
	}
	d := &processes[0]
	old, err := s.podsOf(ctx, d.Name)
	if err != nil {
		return err
	}
	f.notef(scenario.Halted, false, "no new pod failed")
	if err := r.Break(ctx, d.Name); err != nil {
		return err
	}
	defer func() {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if undone := r.Undo(undo, d.Name); undone != nil {
			err = errors.Join(err, undone)
			return
		}
		err = errors.Join(err, s.awaitProcess(undo, d.Name))
	}()
	err = await(ctx, patience, "the new version of "+d.Name+" fails", func(ctx context.Context) (bool, error) {
		fresh, err := s.fresh(ctx, d.Name, old)
		return slices.ContainsFunc(fresh, func(p corev1.Pod) bool { return restarts(&p) > 0 }), err
	})
	if err != nil {
		return err
	}
	return s.halted(ctx, d, old, hold, f)
}

// fresh are the pods of a process that are none of the old ones.
func (s *Shop) fresh(ctx context.Context, name string, old []corev1.Pod) ([]corev1.Pod, error) {
	pods, err := s.podsOf(ctx, name)
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return slices.ContainsFunc(old, func(o corev1.Pod) bool { return o.UID == p.UID })
	}), err
}

// halted looks for a time whether the rollout stands still: one new pod, and all the old ones ready.
func (s *Shop) halted(ctx context.Context, d *appsv1.Deployment, old []corev1.Pod, hold time.Duration, f found) error {
	until := time.Now().Add(hold)
	for time.Now().Before(until) {
		pods, err := s.podsOf(ctx, d.Name)
		if err != nil {
			return err
		}
		serving := 0
		for i := range pods {
			if ready(&pods[i]) && slices.ContainsFunc(old, func(o corev1.Pod) bool { return o.UID == pods[i].UID }) {
				serving++
			}
		}
		fresh := len(pods) - serving
		if serving < int(*d.Spec.Replicas) || fresh > 1 {
			f.notef(scenario.Halted, false, "%d of %d old pods serve, %d new ones are there", serving, *d.Spec.Replicas, fresh)
			return nil
		}
		f.notef(scenario.Halted, true, "%d old pods serve, %d new one fails", serving, fresh)
		if err := sleep(ctx, lookEvery); err != nil {
			return err
		}
	}
	return nil
}
