package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/watertight/lab/result"
	"example.com/watertight/lab/scenario"
)

// patience is how long Kubernetes may take for what is done to it: a node may be a laptop that does other things too.
const patience = 3 * time.Minute

// fieldManager is who the API server notes down for what is changed here. The name is nobody else's: Helm takes over what was
// set under its own, and its next upgrade would undo the annotation that a rollout leaves, by rolling out everything.
const fieldManager = "watertight-lab"

// found are the signals that an act itself has seen.
type found map[scenario.SignalKind]result.Finding

func (f found) notef(kind scenario.SignalKind, met bool, format string, args ...any) {
	f[kind] = result.Finding{Met: met, Got: fmt.Sprintf(format, args...)}
}

// processes are the Deployments that a fault is for; none named are all. In a design that has no process of a service, its
// place is taken by the one that has everything.
func (s *Shop) processes(ctx context.Context, on []string) ([]appsv1.Deployment, error) {
	all, err := s.deployments(ctx)
	if err != nil || len(on) == 0 {
		return all, err
	}
	byName := map[string]*appsv1.Deployment{}
	for i := range all {
		byName[all[i].Name] = &all[i]
	}
	var chosen []appsv1.Deployment
	taken := map[string]bool{}
	for _, name := range on {
		d := byName[name]
		if d == nil {
			d = byName["monolith"]
		}
		if d == nil {
			return nil, fmt.Errorf("the shop in the namespace %s has no process %s", s.Namespace, name)
		}
		if !taken[d.Name] {
			taken[d.Name] = true
			chosen = append(chosen, *d)
		}
	}
	return chosen, nil
}

// podsOf are the pods of one process or server.
func (s *Shop) podsOf(ctx context.Context, name string) ([]corev1.Pod, error) {
	all, err := s.pods(ctx)
	return slices.DeleteFunc(all, func(p corev1.Pod) bool { return component(&p) != name }), err
}

// settled reports whether a Deployment has what it is to have, and no other pods.
func settled(d *appsv1.Deployment) bool {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	st := d.Status
	return st.ObservedGeneration >= d.Generation && st.Replicas == want && st.UpdatedReplicas == want && st.ReadyReplicas == want
}

// awaitProcess waits until a Deployment is settled.
func (s *Shop) awaitProcess(ctx context.Context, name string) error {
	return await(ctx, patience, name+" is ready", func(ctx context.Context) (bool, error) {
		d, err := s.client.AppsV1().Deployments(s.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return settled(d), nil
	})
}

// awaitGone waits until none of the pods is left.
func (s *Shop) awaitGone(ctx context.Context, old []corev1.Pod) error {
	return await(ctx, patience, "the old pods are gone", func(ctx context.Context) (bool, error) {
		now, err := s.pods(ctx)
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(now, func(p corev1.Pod) bool {
			return slices.ContainsFunc(old, func(o corev1.Pod) bool { return o.UID == p.UID })
		}), nil
	})
}

// rollOut replaces the pods of processes, one process after the other, as `kubectl rollout restart` does.
func (s *Shop) rollOut(ctx context.Context, on []string, f found) error {
	processes, err := s.processes(ctx, on)
	if err != nil {
		return err
	}
	f.notef(scenario.Replaced, false, "not all")
	for i := range processes {
		name := processes[i].Name
		old, err := s.podsOf(ctx, name)
		if err != nil {
			return err
		}
		if err := s.Restart(ctx, name); err != nil {
			return err
		}
		if err := errors.Join(s.awaitProcess(ctx, name), s.awaitGone(ctx, old)); err != nil {
			return err
		}
	}
	f.notef(scenario.Replaced, true, "%d processes", len(processes))
	return nil
}

// servers are what the shop stands on and the chart brings along.
func servers() []string { return []string{"nats", "postgres"} }

// kill deletes every pod at once, process by process, and then those of the servers, which may close their files: a
// database whose pod is deleted by force is not what is tried here.
func (s *Shop) kill(ctx context.Context, f found) error {
	processes, err := s.processes(ctx, nil)
	if err != nil {
		return err
	}
	f.notef(scenario.Replaced, false, "not all")
	for i := range processes {
		if err := s.killProcess(ctx, processes[i].Name); err != nil {
			return err
		}
	}
	killed := []string{}
	for _, server := range servers() {
		there, err := s.killServer(ctx, server)
		if err != nil {
			return err
		}
		if there {
			killed = append(killed, server)
		}
	}
	f.notef(scenario.Replaced, true, "%d processes, %s", len(processes), strings.Join(killed, ", "))
	return nil
}

func (s *Shop) killProcess(ctx context.Context, name string) error {
	pods, err := s.podsOf(ctx, name)
	if err != nil {
		return err
	}
	atOnce := int64(0)
	for i := range pods {
		if err := s.client.CoreV1().Pods(s.Namespace).Delete(ctx, pods[i].Name, metav1.DeleteOptions{GracePeriodSeconds: &atOnce}); err != nil {
			return fmt.Errorf("kill pod %s: %w", pods[i].Name, err)
		}
	}
	return errors.Join(s.awaitGone(ctx, pods), s.awaitProcess(ctx, name))
}

func (s *Shop) killServer(ctx context.Context, name string) (there bool, err error) {
	pods, err := s.podsOf(ctx, name)
	if err != nil || len(pods) == 0 {
		return false, err
	}
	for i := range pods {
		if err := s.client.CoreV1().Pods(s.Namespace).Delete(ctx, pods[i].Name, metav1.DeleteOptions{}); err != nil {
			return true, fmt.Errorf("kill pod %s: %w", pods[i].Name, err)
		}
	}
	return true, errors.Join(s.awaitGone(ctx, pods), s.awaitServer(ctx, name))
}

// awaitServer waits until a StatefulSet has all its pods.
func (s *Shop) awaitServer(ctx context.Context, name string) error {
	return await(ctx, patience, name+" is ready", func(ctx context.Context) (bool, error) {
		set, err := s.client.AppsV1().StatefulSets(s.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return set.Status.ObservedGeneration >= set.Generation && set.Spec.Replicas != nil && set.Status.ReadyReplicas == *set.Spec.Replicas, nil
	})
}

// scale sets the number of replicas; resource is deployments or statefulsets.
func (s *Shop) scale(ctx context.Context, resource, name string, replicas int32) error {
	if err := s.patch(ctx, resource, name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)); err != nil {
		return fmt.Errorf("scale %s to %d: %w", name, replicas, err)
	}
	return nil
}

// patch merges something into a Deployment or a StatefulSet.
func (s *Shop) patch(ctx context.Context, resource, name, patch string) (err error) {
	options := metav1.PatchOptions{FieldManager: fieldManager}
	if resource == "statefulsets" {
		_, err = s.client.AppsV1().StatefulSets(s.Namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), options)
		return err
	}
	_, err = s.client.AppsV1().Deployments(s.Namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), options)
	return err
}

// back sets a number of replicas again, whether ctx has ended or not.
func (s *Shop) back(ctx context.Context, resource, name string, replicas int32) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	return s.scale(ctx, resource, name, replicas)
}

// absent takes a server away for a time.
func (s *Shop) absent(ctx context.Context, name string, d time.Duration, f found) (err error) {
	set, err := s.client.AppsV1().StatefulSets(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("take %s away: %w", name, err)
	}
	before := *set.Spec.Replicas
	pods, err := s.podsOf(ctx, name)
	if err != nil {
		return err
	}
	if err := s.scale(ctx, "statefulsets", name, 0); err != nil {
		return err
	}
	err = s.awaitGone(ctx, pods)
	began := time.Now()
	if err == nil {
		err = sleep(ctx, d)
	}
	f.notef(scenario.Absence, err == nil, "for %.0f s", time.Since(began).Seconds())
	if err = errors.Join(err, s.back(ctx, "statefulsets", name, before)); err != nil {
		return err
	}
	return s.awaitServer(ctx, name)
}

// evict asks for two pods of each process to leave, the second at once after the first: it must be refused until the first
// one's successor is there.
func (s *Shop) evict(ctx context.Context, on []string, f found) (err error) {
	processes, err := s.processes(ctx, on)
	if err != nil {
		return err
	}
	f.notef(scenario.Refused, false, "not all")
	for i := range processes {
		if err := s.evictTwo(ctx, &processes[i], f); err != nil {
			return err
		}
	}
	if f[scenario.Refused].Got == "not all" {
		f.notef(scenario.Refused, true, "once for each of %d processes, and granted when the first pod's successor was ready", len(processes))
	}
	return nil
}

func (s *Shop) evictTwo(ctx context.Context, d *appsv1.Deployment, f found) (err error) {
	const replicas = 2
	if before := *d.Spec.Replicas; before < replicas {
		if err := s.scale(ctx, "deployments", d.Name, replicas); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.back(ctx, "deployments", d.Name, before)) }()
	}
	if err := s.awaitProcess(ctx, d.Name); err != nil {
		return err
	}
	pods, err := s.podsOf(ctx, d.Name)
	if err != nil {
		return err
	}
	if pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !ready(&p) }); len(pods) < replicas {
		return fmt.Errorf("evict pods of %s: %d are ready, want %d", d.Name, len(pods), replicas)
	}
	// The budget's own count follows the pods with a delay.
	err = await(ctx, patience, "the first pod of "+d.Name+" may be evicted", func(ctx context.Context) (bool, error) {
		err := s.evictPod(ctx, pods[0].Name)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	if err := s.evictPod(ctx, pods[1].Name); !apierrors.IsTooManyRequests(err) {
		f.notef(scenario.Refused, false, "%s: the second eviction was answered %q", d.Name, fmt.Sprint(err))
		return nil
	}
	err = await(ctx, patience, "the second pod of "+d.Name+" may be evicted", func(ctx context.Context) (bool, error) {
		err := s.evictPod(ctx, pods[1].Name)
		return err == nil || apierrors.IsNotFound(err), err
	})
	if err != nil {
		return err
	}
	return errors.Join(s.awaitGone(ctx, pods), s.awaitProcess(ctx, d.Name))
}

func (s *Shop) evictPod(ctx context.Context, name string) error {
	return s.client.PolicyV1().Evictions(s.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace}})
}
