// Package e2e proves on a real cluster that what goes wrong with recs stays there: it installs the chart with Helm into a
// namespace of its own, plays the lab's scenarios on it under load, and takes everything away again. It knows the shop from
// outside. It runs when E2E is set (make e2e sees to that), on the cluster that kubectl points at.
package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/watertight/lab/cluster"
	"example.com/watertight/lab/result"
	"example.com/watertight/lab/scenario"
)

// settings are one run's, from the environment.
type settings struct {
	quick     bool   // E2E=quick: shorter faults
	keep      bool   // E2E_KEEP: the namespaces stay, with what is in them
	namespace string // E2E_NAMESPACE
	dir       string // E2E_DIR: for the result, and for logs and events when a test fails
}

// readSettings skips the test when nobody asked for a cluster: whoever runs all tests may have one that is meant for
// something else.
func readSettings(t *testing.T) settings {
	t.Helper()
	mode := os.Getenv("E2E")
	switch mode {
	case "":
		t.Skip("works on a cluster: use make e2e, or set E2E=1 (or E2E=quick) and KUBECONFIG")
	case "1", "quick":
	default:
		t.Fatalf("E2E: must be 1 or quick, is %q", mode)
	}
	s := settings{quick: mode == "quick" || testing.Short(), keep: os.Getenv("E2E_KEEP") != "", namespace: cmp.Or(os.Getenv("E2E_NAMESPACE"), "watertight-e2e")}
	s.dir = cmp.Or(os.Getenv("E2E_DIR"), filepath.Join("..", "..", "build", "e2e", time.Now().Format("20060102-150405")))
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	return s
}

// rig is a shop that is installed, and what was played on it so far.
type rig struct {
	settings
	client    kubernetes.Interface
	namespace string
	release   *installation
	run       *cluster.Run
}

// laptop are the values beside the images' and the chart's own. A node that does everything at once may make a search wait
// for longer than the shop's customers would: the budget says so, and everything else is as it is shipped.
func laptop() values {
	return values{
		"faults":   values{"enabled": true},
		"services": values{"gateway": values{"env": values{"SEARCH_TIMEOUT": "2s"}}},
	}
}

// install installs the shop into an empty namespace in which only pods of the restricted kind may run, and removes it with
// its namespace when the test is over.
func install(t *testing.T, s settings, namespace string, own values) *rig {
	t.Helper()
	place := cluster.Place{Namespace: namespace}
	config, err := place.Config()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	release, err := newInstallation(place, own)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{settings: s, client: client, namespace: namespace, release: release}
	r.clearNamespace(t)
	r.makeNamespace(t)
	t.Cleanup(func() {
		if t.Failed() {
			r.collect(t, "at-the-end")
		}
		if s.keep {
			return
		}
		if err := r.release.uninstall(); err != nil {
			t.Error(err)
		}
		r.clearNamespace(t)
	})
	began := time.Now()
	if err := release.install(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("installed in %s within %.0f s", namespace, time.Since(began).Seconds())
	shop, err := cluster.Open(place)
	if err != nil {
		t.Fatal(err)
	}
	const seed = 19
	r.run, err = cluster.Begin(t.Context(), shop, cluster.Options{Seed: seed, Quick: s.quick, Releaser: release, Say: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) makeNamespace(t *testing.T) {
	t.Helper()
	_, err := r.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: r.namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// clearNamespace removes the namespace and waits until it is gone, whether the test's context has ended or not.
func (r *rig) clearNamespace(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	err := r.client.CoreV1().Namespaces().Delete(ctx, r.namespace, metav1.DeleteOptions{})
	for ; err == nil; _, err = r.client.CoreV1().Namespaces().Get(ctx, r.namespace, metav1.GetOptions{}) {
		select {
		case <-ctx.Done():
			t.Fatalf("namespace %s is not gone within 3 minutes", r.namespace)
		case <-time.After(time.Second):
		}
	}
	if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// row is one of the table's scenarios.
func (r *rig) row(t *testing.T, name string) scenario.Scenario {
	t.Helper()
	return r.rowAt(t, name, scenario.ClusterInputs().Rate)
}

// rowAt is one of the table's scenarios, at so many requests a second.
func (r *rig) rowAt(t *testing.T, name string, rate float64) scenario.Scenario {
	t.Helper()
	in := scenario.ClusterInputs()
	in.Rate = rate
	s, known := scenario.Find(scenario.OnCluster(in, r.quick), name, func(s scenario.Scenario) string { return s.Name })
	if !known {
		t.Fatalf("there is no scenario %s", name)
	}
	return s
}

// play plays a scenario. The test fails for every signal that is not as it should be: those of the fault, which must have
// happened, and those of everything else, which must not have suffered.
func (r *rig) play(t *testing.T, s scenario.Scenario) *result.Cell {
	t.Helper()
	cell, err := r.run.Play(t.Context(), &s)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range cell.Findings {
		if !f.Met {
			t.Errorf("not so: %s; got %s", f.Signal, f.Got)
		} else {
			t.Logf("%s: %s", f.Signal, f.Got)
		}
	}
	if !cell.Met() {
		t.Error(cell.Verdict())
	}
	for _, w := range cell.Warnings {
		t.Logf("the load says: %s", w)
	}
	if t.Failed() { // before the pods are replaced by the next row's doings
		r.collect(t, s.Name)
	}
	return cell
}

// Requests a second while everything is rolled out, and while it is to be seen that requests can be lost.
const (
	rolloutRate = 100
	busyRate    = 250
)

func TestShopOnKubernetes(t *testing.T) {
	s := readSettings(t)
	began := time.Now()
	r := install(t, s, s.namespace, laptop())
	t.Run("the release fits a laptop", r.testMemory)
	t.Run("a crash loop stays in recs", r.testCrashLoop)
	t.Run("b memory limit stays in recs", r.testOOM)
	t.Run("c slow recs costs checkout nothing", func(t *testing.T) { r.play(t, r.row(t, scenario.Slow)) })
	t.Run("d rollouts lose nothing", func(t *testing.T) { r.play(t, r.rowAt(t, scenario.RolledOut, rolloutRate)) })
	t.Run("e bad release stops at its first pod", func(t *testing.T) { r.play(t, r.row(t, scenario.BadRelease)) })
	t.Run("f killed pods lose no order", func(t *testing.T) { r.play(t, r.row(t, scenario.Killed)) })
	t.Run("g evictions respect the budgets", func(t *testing.T) { r.play(t, r.row(t, scenario.Evicted)) })
	t.Run("h no restart without a database", func(t *testing.T) { r.play(t, r.row(t, scenario.DBGone)) })
	t.Run("i more replicas take their share", r.testScaleOut)
	t.Run("d without a drain requests are lost", r.testUndrained)
	file := r.run.Result()
	t.Run("d the monolith rolls out as well", func(t *testing.T) { testMonolith(t, s, file) })
	r.report(t, file, time.Since(began))
}

// report prints the table and keeps the result.
func (r *rig) report(t *testing.T, file *result.File, took time.Duration) {
	t.Helper()
	var table strings.Builder
	if err := file.WriteVerdicts(&table); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d scenarios on Kubernetes %s, %v with the installation:\n%s", len(file.Cells), file.Versions["kubernetes"], took.Round(time.Second), table.String())
	path := filepath.Join(r.dir, "result.json")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.WriteJSON(out); err != nil {
		t.Error(err)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("the whole result: %s", path)
}

func (r *rig) testCrashLoop(t *testing.T) {
	cell := r.play(t, r.row(t, scenario.Crash))
	if n := cell.Restarts["recs"]; n < 2 {
		t.Errorf("recs was restarted %d times, want 2 or more: a loop", n)
	}
}

// testUndrained has requests fail, so that the tests above are known to see it when they do: the same rollouts, under a load
// that keeps the gateway busy, lose nothing with the drain and something without. The release stays so: this row is the last.
func (r *rig) testUndrained(t *testing.T) {
	undrained, drained := r.rowAt(t, scenario.Undrained, busyRate), r.rowAt(t, scenario.RolledOut, busyRate)
	drained.Fault.On = undrained.Fault.On
	r.play(t, drained)
	if err := r.release.upgrade(t.Context(), values{"drain": values{"delay": 0}}, kube.StatusWatcherStrategy); err != nil {
		t.Fatal(err)
	}
	r.play(t, undrained)
}

// testMonolith is a second shop, in one process, in a second namespace.
func testMonolith(t *testing.T, s settings, file *result.File) {
	own := laptop()
	own["design"] = scenario.SharedPool
	delete(own, "services")
	r := install(t, s, s.namespace+"-monolith", own)
	cell := r.play(t, r.row(t, scenario.RolledOut))
	file.Cells = append(file.Cells, *cell)
	if got := r.run.Design(); got != scenario.SharedPool {
		t.Errorf("the shop says that its design is %q, want %q", got, scenario.SharedPool)
	}
}

func (r *rig) testScaleOut(t *testing.T) {
	r.play(t, r.row(t, scenario.ScaledOut))
	r.autoscalersAreValid(t)
}

// collect keeps the events and the logs of every pod, those of the container before included, in a folder of that name.
func (r *rig) collect(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := filepath.Join(r.dir, r.namespace, name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Error(err)
		return
	}
	t.Logf("logs and events of the failed run: %s", dir)
	keep := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Error(err)
		}
	}
	events, err := r.client.CoreV1().Events(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Errorf("events: %v", err)
	} else {
		var all strings.Builder
		for _, e := range events.Items {
			fmt.Fprintf(&all, "%s x%d %s %s/%s %s: %s\n", e.LastTimestamp.Format(time.TimeOnly), e.Count, e.Type, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
		}
		keep("events.txt", all.String())
	}
	pods, err := r.client.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Errorf("pods: %v", err)
		return
	}
	for _, p := range pods.Items {
		for _, c := range p.Spec.Containers {
			for suffix, previous := range map[string]bool{".log": false, ".previous.log": true} {
				content, err := r.client.CoreV1().Pods(r.namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: c.Name, Previous: previous}).DoRaw(ctx)
				if err == nil { // else there is none
					keep(p.Name+suffix, string(content))
				}
			}
		}
	}
}
