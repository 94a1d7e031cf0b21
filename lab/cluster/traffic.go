package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/watertight/lab/load"
)

// The load runs in a pod beside the shop, against the gateway's Service, as its customers' requests come: that works on
// every kind of cluster, where a port of this machine's need not reach a node's. What was measured and the orders that were
// acknowledged come back as the pod's log, so that nothing but the API server is needed.

// maxTraffic is when the load ends by itself, should nobody be left to end it.
const maxTraffic = 30 * time.Minute

// lateAfter is the delay from which the generator counts a start as late; a laptop's node is busy with much else.
const lateAfter = 5 * time.Millisecond

// request is the load of one run.
type request struct {
	rate     float64 // requests a second
	mix      load.Mix
	seed     uint64
	retries  int
	products int // 0: all
	warmUp   time.Duration
	patience time.Duration
}

func (r request) args(target string) []string {
	args := []string{
		"load", "--target=" + target, "--output=json", "--acked=-", fmt.Sprintf("--rate=%g", r.rate), "--mix=" + r.mix.String(),
		fmt.Sprintf("--seed=%d", r.seed), fmt.Sprintf("--client-retries=%d", r.retries), "--duration=" + maxTraffic.String(),
		"--warmup=" + r.warmUp.String(), "--timeout=" + r.patience.String(), "--late-after=" + lateAfter.String(),
	}
	if r.products > 0 {
		args = append(args, fmt.Sprintf("--products=%d", r.products))
	}
	return args
}

// traffic is the load while it runs.
type traffic struct {
	shop *Shop
	pod  string
}

// container is the only one of lab's pods here.
const container = "lab"

// startUp bounds the time until a pod of lab's runs.
const startUp = 2 * time.Minute

// startTraffic returns when the load runs.
func (s *Shop) startTraffic(ctx context.Context, image string, r request) (*traffic, error) {
	target, err := s.target(ctx)
	if err != nil {
		return nil, err
	}
	pod := s.labPod("load-", image, r.args(target))
	made, err := s.client.CoreV1().Pods(s.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("start the load: %w", err)
	}
	t := &traffic{s, made.Name}
	err = await(ctx, startUp, "the load's pod runs", func(ctx context.Context) (bool, error) {
		state, err := s.state(ctx, t.pod)
		if err != nil {
			return false, err
		}
		if state.Terminated != nil || state.Running != nil {
			return true, nil
		}
		if state.Waiting != nil {
			return false, fmt.Errorf("pod %s waits: %s %s", t.pod, state.Waiting.Reason, state.Waiting.Message)
		}
		return false, nil
	})
	if err == nil {
		err = t.goesOn(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, t.remove(ctx))
	}
	return t, nil
}

// target is the gateway's address within the cluster.
func (s *Shop) target(ctx context.Context) (string, error) {
	service, err := s.client.CoreV1().Services(s.Namespace).Get(ctx, gatewayKey, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("there is no shop in the namespace %s: its Service gateway is missing", s.Namespace)
	}
	if err != nil {
		return "", fmt.Errorf("find the gateway: %w", err)
	}
	for _, p := range service.Spec.Ports {
		if p.Name == "http" {
			return "http://" + net.JoinHostPort(gatewayKey, strconv.Itoa(int(p.Port))), nil
		}
	}
	return "", errors.New("the Service gateway has no port http")
}

// labPod is a pod of lab's, with the labels that the shop's network policies let pass.
func (s *Shop) labPod(prefix, image string, args []string) *corev1.Pod {
	yes, no, user := true, false, int64(65532)
	var hurry int64 = 15
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: prefix, Namespace: s.Namespace,
			Labels: map[string]string{nameLabel: strings.TrimSuffix(prefix, "-"), partLabel: labPart, "app.kubernetes.io/part-of": "watertight"},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: &no, EnableServiceLinks: &no, TerminationGracePeriodSeconds: &hurry,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: container, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: args,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				Resources: labResources(),
			}},
		},
	}
}

// state is that of a pod of lab's; empty while there is none yet.
func (s *Shop) state(ctx context.Context, pod string) (corev1.ContainerState, error) {
	p, err := s.client.CoreV1().Pods(s.Namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return corev1.ContainerState{}, fmt.Errorf("look at pod %s: %w", pod, err)
	}
	if p.Status.Phase == corev1.PodFailed && len(p.Status.ContainerStatuses) == 0 {
		return corev1.ContainerState{}, fmt.Errorf("pod %s failed before it ran: %s", pod, p.Status.Message)
	}
	for _, c := range p.Status.ContainerStatuses {
		return c.State, nil
	}
	return corev1.ContainerState{}, nil
}

// goesOn returns an error, with the end of its log, when the load has ended by itself.
func (t *traffic) goesOn(ctx context.Context) error {
	state, err := t.shop.state(ctx, t.pod)
	if err != nil || state.Terminated == nil {
		return err
	}
	log, err := t.shop.log(ctx, t.pod)
	const most = 2000
	return errors.Join(fmt.Errorf("the load ended by itself, with exit code %d: %s", state.Terminated.ExitCode, log[max(len(log)-most, 0):]), err)
}

func (s *Shop) log(ctx context.Context, pod string) ([]byte, error) {
	stream, err := s.client.CoreV1().Pods(s.Namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("log of pod %s: %w", pod, err)
	}
	content, err := io.ReadAll(stream)
	if err = errors.Join(err, stream.Close()); err != nil {
		return nil, fmt.Errorf("log of pod %s: %w", pod, err)
	}
	return content, nil
}

// stop ends the load, and returns what it measured and which orders were acknowledged, an id on each line. The load must
// have gone on until now.
func (t *traffic) stop(ctx context.Context) (measured load.Result, acknowledged []byte, err error) {
	defer func() { err = errors.Join(err, t.remove(ctx)) }()
	if err := t.goesOn(ctx); err != nil {
		return measured, nil, err
	}
	// A deadline that has passed stops the container as a deletion would, and unlike that leaves its log.
	deadline := []byte(`{"spec":{"activeDeadlineSeconds":1}}`)
	options := metav1.PatchOptions{FieldManager: fieldManager}
	_, err = t.shop.client.CoreV1().Pods(t.shop.Namespace).Patch(ctx, t.pod, types.MergePatchType, deadline, options)
	if err != nil {
		return measured, nil, fmt.Errorf("stop the load: %w", err)
	}
	err = await(ctx, time.Minute, "the load's pod has ended", func(ctx context.Context) (bool, error) {
		state, err := t.shop.state(ctx, t.pod)
		return state.Terminated != nil, err
	})
	if err != nil {
		return measured, nil, err
	}
	log, err := t.shop.log(ctx, t.pod)
	if err != nil {
		return measured, nil, err
	}
	return readTraffic(log)
}

// goodbye is what lab says on its error output when it was asked to end. A pod's log has both outputs, and this may stand
// in the middle of the other, even of a line of it.
const goodbye = "lab: context canceled\n"

// readTraffic takes a log of `lab load --acked=- --output=json` apart: ids, one a line, then the result.
func readTraffic(log []byte) (measured load.Result, acknowledged []byte, err error) {
	log = bytes.ReplaceAll(log, []byte(goodbye), nil)
	lines := bufio.NewReader(bytes.NewReader(log))
	for {
		line, err := lines.ReadBytes('\n')
		if bytes.HasPrefix(line, []byte("{")) {
			rest := io.MultiReader(bytes.NewReader(line), lines)
			if err := json.NewDecoder(rest).Decode(&measured); err != nil {
				return measured, nil, fmt.Errorf("the load's result: %w", err)
			}
			return measured, acknowledged, nil
		}
		if err != nil {
			const most = 500
			return measured, nil, fmt.Errorf("the load left no result; its log ends with %q", log[max(len(log)-most, 0):])
		}
		acknowledged = append(acknowledged, line...)
	}
}

// remove deletes the pod, whether ctx has ended or not.
func (t *traffic) remove(ctx context.Context) error { return t.shop.removePod(ctx, t.pod) }

// cleanUp bounds the removal of what was made.
const cleanUp = 20 * time.Second

func (s *Shop) removePod(ctx context.Context, pod string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if err := s.client.CoreV1().Pods(s.Namespace).Delete(ctx, pod, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove pod %s: %w", pod, err)
	}
	return nil
}
