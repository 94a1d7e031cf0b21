// Package cluster plays the lab's scenarios on a shop in Kubernetes: it sends the shop the lab's load from a pod beside it,
// makes it sick or works on its pods, reads restarts, reasons, rollouts and the shop's own status meanwhile, and holds the
// order books against what was acknowledged. All it needs is the API server: faults and status go through its proxy. It
// installs nothing, and ends what it began: its own pods, the faults that it set, and the replicas that it changed.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	labfault "example.com/watertight/lab/fault"
)

// Labels of the shop's objects.
const (
	nameLabel  = "app.kubernetes.io/name"
	partLabel  = "app.kubernetes.io/component"
	labPart    = "lab"
	shopPods   = "app.kubernetes.io/part-of=watertight," + partLabel + " notin (" + labPart + ", observability)" // what keeps traces is no part of the shop
	gatewayKey = "gateway"
)

// Shop is a shop in a namespace. It may be used by several goroutines.
type Shop struct {
	Namespace string

	client kubernetes.Interface
	api    *url.URL     // of the API server
	http   *http.Client // with the credentials for it
}

// Place says where a shop is. Empty fields are what kubectl takes: KUBECONFIG or ~/.kube/config, and its current context.
type Place struct {
	Kubeconfig string
	Context    string
	Namespace  string
}

// Config reads the place's kubeconfig.
func (p Place) Config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = p.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: p.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	const perSecond, burst = 50, 100 // a few looks a second, at a handful of objects each
	config.QPS, config.Burst = perSecond, burst
	return config, nil
}

// Open returns the shop at the place. It asks the API server for nothing yet.
func Open(p Place) (*Shop, error) {
	config, err := p.Config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	authorized, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	api, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return &Shop{Namespace: p.Namespace, client: client, api: api, http: authorized}, nil
}

// proxied is the address of something in the namespace, through the API server: services/gateway:http or pods/NAME:9090.
func (s *Shop) proxied(of string) *url.URL {
	return s.api.JoinPath("api", "v1", "namespaces", s.Namespace, of, "proxy")
}

func (s *Shop) gateway() *url.URL { return s.proxied("services/gateway:http") }

// faults is the switch behind the gateway.
func (s *Shop) faults() (*labfault.Switch, error) {
	return labfault.NewSwitch(s.gateway().String(), s.http)
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 8 << 20

// get reads what is at an address.
func (s *Shop) get(ctx context.Context, at *url.URL) ([]byte, error) {
	_, content, err := s.do(ctx, http.MethodGet, at, nil, "")
	return content, err
}

// do sends a request, and returns the answer's header and content; a status of 400 or more is an error.
func (s *Shop) do(ctx context.Context, method string, at *url.URL, header http.Header, body string) (http.Header, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, at.String(), strings.NewReader(body))
	if err != nil {
		return nil, nil, fmt.Errorf("make the request: %w", err)
	}
	maps.Copy(request.Header, header)
	response, err := s.http.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, nil, fmt.Errorf("read the answer: %w", err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		const most = 200
		return nil, nil, fmt.Errorf("%s %s: %s: %.*s", method, at.Path, response.Status, most, content)
	}
	return response.Header, content, nil
}

// status is what is read of the shop's own status.
type status struct {
	Version   string `json:"version"`
	Design    string `json:"design"`
	Upstreams []struct {
		Name    string `json:"name"`
		Breaker string `json:"breaker"`
	} `json:"upstreams"`
	Orders struct {
		PerSecond float64 `json:"per_second"`
	} `json:"orders"`
	Faults []struct {
		Service string `json:"service"`
	} `json:"faults"`
}

// lookTimeout bounds a look at the shop's status, which asks nobody else.
const lookTimeout = 2 * time.Second

func (s *Shop) status(ctx context.Context) (st status, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	content, err := s.get(ctx, s.gateway().JoinPath("api", "v1", "status"))
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(content, &st); err != nil {
		return st, fmt.Errorf("status: %w", err)
	}
	return st, nil
}

// pods are the shop's own, by name; those of lab are left out.
func (s *Shop) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := s.client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: shopPods})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return list.Items, nil
}

// component is the process that a pod runs.
func component(p *corev1.Pod) string { return p.Labels[nameLabel] }

func ready(p *corev1.Pod) bool {
	if p.DeletionTimestamp != nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// restarts is how often the pod's containers were started again.
func restarts(p *corev1.Pod) int {
	n := 0
	for _, c := range p.Status.ContainerStatuses {
		n += int(c.RestartCount)
	}
	return n
}

// reasons are those that the pod's containers give for not running, or for not having gone on.
func reasons(p *corev1.Pod) []string {
	var all []string
	add := func(reason string) {
		// Completed is an exit with code 0, and the others are on the way to a start.
		if reason != "" && reason != "Completed" && reason != "ContainerCreating" && reason != "PodInitializing" {
			all = append(all, reason)
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			add(w.Reason)
		}
		for _, t := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if t != nil {
				add(t.Reason)
			}
		}
	}
	return all
}

// lookEvery paces the looks at what is awaited.
const lookEvery = 500 * time.Millisecond

// errLate is the cause of a wait that took too long.
var errLate = errors.New("it took too long")

// await looks until done reports true, or the limit is over: then the error says what was awaited and what the last look
// found. What fails to be read is looked at again, because an API server may be busy for a moment.
func await(ctx context.Context, limit time.Duration, what string, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errLate)
	defer cancel()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		ok, err := done(ctx)
		if err == nil && ok {
			return nil
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errLate) {
				return cause
			}
			return errors.Join(fmt.Errorf("%s: not within %v", what, limit), err)
		case <-ticker.C:
		}
	}
}

// sleep waits, unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
