package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"example.com/watertight/lab/scenario"
)

// mostMemory is what the whole release, database and broker included, may ask for, and less than which it uses.
const mostMemory = 1 << 30

// running are the release's pods that stay: the import job's has done its work.
func (r *rig) running(t *testing.T) []corev1.Pod {
	t.Helper()
	pods, err := r.client.CoreV1().Pods(r.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running"})
	if err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

func (r *rig) testMemory(t *testing.T) {
	requested := int64(0)
	used := int64(0)
	uids := map[string]bool{}
	nodes := map[string]bool{}
	for _, p := range r.running(t) {
		uids[string(p.UID)], nodes[p.Spec.NodeName] = true, true
		for _, c := range p.Spec.Containers {
			requested += c.Resources.Requests.Memory().Value()
		}
	}
	for node := range nodes {
		used += r.workingSet(t, node, uids)
	}
	t.Logf("%d pods request %d MiB and use %d MiB", len(uids), requested>>20, used>>20)
	if requested == 0 || requested > mostMemory {
		t.Errorf("the release requests %d MiB, want at most %d", requested>>20, mostMemory>>20)
	}
	if used == 0 || used >= mostMemory {
		t.Errorf("the release uses %d MiB, want less than %d and more than nothing", used>>20, mostMemory>>20)
	}
}

// workingSet adds up the memory of the pods on a node, as its kubelet has it.
func (r *rig) workingSet(t *testing.T, node string, uids map[string]bool) int64 {
	t.Helper()
	content, err := r.client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("stats", "summary").DoRaw(t.Context())
	if err != nil {
		t.Fatalf("statistics of node %s: %v", node, err)
	}
	var summary struct {
		Pods []struct {
			PodRef struct {
				UID string `json:"uid"`
			} `json:"podRef"` //nolint:tagliatelle // as the kubelet spells it
			Containers []struct {
				Memory struct {
					WorkingSetBytes int64 `json:"workingSetBytes"` //nolint:tagliatelle // as the kubelet spells it
				} `json:"memory"`
			} `json:"containers"`
		} `json:"pods"`
	}
	if err := json.Unmarshal(content, &summary); err != nil {
		t.Fatalf("statistics of node %s: %v", node, err)
	}
	sum := int64(0)
	for _, p := range summary.Pods {
		if uids[p.PodRef.UID] {
			for _, c := range p.Containers {
				sum += c.Memory.WorkingSetBytes
			}
		}
	}
	return sum
}

func (r *rig) testOOM(t *testing.T) {
	before := map[string]bool{}
	for _, p := range r.running(t) {
		if strings.HasPrefix(p.Name, "recs-") {
			before[string(p.UID)] = true
		}
	}
	cell := r.play(t, r.row(t, scenario.OOM))
	if cell.Restarts["recs"] == 0 {
		t.Error("recs was not restarted")
	}
	for uid := range before {
		kills, err := oomKills("/sys/fs/cgroup", uid)
		switch {
		case errors.Is(err, errNotV2):
			t.Log("this machine has cgroup v1, which keeps no memory.events: what the kubelet says must do")
		case errors.Is(err, fs.ErrNotExist):
			t.Log("the cgroup of recs' pod is not on this machine, or gone with the pod: what the kubelet says must do")
		case err != nil:
			t.Error(err)
		case kills == "0":
			t.Errorf("memory.events of recs' pod counts no oom_kill")
		default:
			t.Logf("memory.events of recs' pod: oom_kill %s", kills)
		}
	}
}

var errNotV2 = errors.New("no cgroup v2")

// oomKills finds the pod's cgroup below root, and in it how many processes the kernel killed for want of memory.
func oomKills(root, uid string) (string, error) {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		return "", errNotV2
	}
	found := ""
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // a cgroup may be gone by now
		}
		// The kubelet's two cgroup drivers spell it in two ways.
		if name := d.Name(); strings.Contains(name, "pod"+uid) || strings.Contains(name, "pod"+strings.ReplaceAll(uid, "-", "_")) {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	if err != nil || found == "" {
		return "", errors.Join(err, fs.ErrNotExist)
	}
	content, err := os.ReadFile(filepath.Join(found, "memory.events"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(content)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == "oom_kill" {
			return value, nil
		}
	}
	return "", errors.New("memory.events has no oom_kill")
}

func TestOOMKills_ReadsThePodsOwnCgroup(t *testing.T) {
	root := t.TempDir()
	if _, err := oomKills(root, "a-b"); !errors.Is(err, errNotV2) {
		t.Errorf("without cgroup.controllers: got %v", err)
	}
	write := func(name, content string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup.controllers", "memory")
	write("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice/memory.events", "low 0\nmax 9\noom 3\noom_kill 2\n")
	write("kubepods/burstable/podc-d/memory.events", "oom_kill 0\n")
	for uid, want := range map[string]string{"a-b": "2", "c-d": "0"} {
		if got, err := oomKills(root, uid); got != want || err != nil {
			t.Errorf("pod %s: got %q, %v, want %q", uid, got, err, want)
		}
	}
	if _, err := oomKills(root, "e-f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a pod that is elsewhere: got %v", err)
	}
}

// autoscalersAreValid has the API server look at the chart's autoscalers without making them: an autoscaler would change
// the replicas under the tests' feet.
func (r *rig) autoscalersAreValid(t *testing.T) {
	t.Helper()
	const replicas = 3
	manifest, err := r.release.render(t.Context(), values{
		"autoscaling": values{"enabled": true, "maxReplicas": replicas}, "postgres": values{"maxConnections": 1000},
	})
	if err != nil {
		t.Fatal(err)
	}
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(manifest)), 4096)
	valid := 0
	for {
		var scaler autoscalingv2.HorizontalPodAutoscaler
		err := documents.Decode(&scaler)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if scaler.Kind != "HorizontalPodAutoscaler" {
			continue
		}
		_, err = r.client.AutoscalingV2().HorizontalPodAutoscalers(r.namespace).Create(t.Context(), &scaler, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Errorf("autoscaler of %s: %v", scaler.Name, err)
			continue
		}
		valid++
	}
	if valid < 6 {
		t.Errorf("%d autoscalers are valid, want one for each process", valid)
	}
	t.Logf("the API server takes the autoscalers of %d processes", valid)
}
