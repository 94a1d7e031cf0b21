package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The whole life of a cluster, as `make cluster-up` and `make cluster-down` are used. It needs root, minutes, and the
// images nats and postgres in build/images; `make cluster-test` sees to those.
func TestCluster_DoesWhatTheShopNeedsAndLeavesNothing(t *testing.T) {
	if os.Getenv("CLUSTER_TEST") == "" {
		t.Skip("CLUSTER_TEST is not set: it makes network devices, mounts and cgroups on this machine, as root")
	}
	if _, err := os.Stat("/var/lib/watertight-cluster"); err == nil {
		t.Fatal("there is a cluster already: make cluster-down first")
	}
	// Installs what it calls, so that the packages are not taken for something left behind.
	script(t, "up")
	script(t, "down")
	before := host(t)

	script(t, "up")
	t.Cleanup(func() { script(t, "down") }) // when the proof fails half-way; a second time does no harm
	processes := strings.Count(read(t, "sh", "-c", "cat /var/lib/watertight-cluster/processes/*.pid"), "\n")
	script(t, "up")
	if again := strings.Count(read(t, "sh", "-c", "cat /var/lib/watertight-cluster/processes/*.pid"), "\n"); again != processes || again == 0 {
		t.Errorf("a second up: %d processes, had %d", again, processes)
	}
	prove(t)

	script(t, "down")
	script(t, "down")
	if diff := cmp.Diff(before, host(t)); diff != "" {
		t.Errorf("the cluster left something behind (-before +after):\n%s", diff)
	}
}

func prove(t *testing.T) {
	t.Helper()
	kubectl(t, "apply", "-f", "testdata/prove.yaml")

	// Our images run, restricted; the volume is writable for user 999, which initdb tries to the full.
	kubectl(t, "rollout", "status", "-n", "prove", "statefulset/postgres", "--timeout=120s")
	kubectl(t, "rollout", "status", "-n", "prove", "deployment/nats", "--timeout=60s")
	kubectl(t, "wait", "-n", "prove", "pod/client", "--for=condition=Ready", "--timeout=60s")
	if owner := read(t, "sh", "-c", "stat -c %u /var/lib/watertight-cluster/volumes/*/pg"); strings.TrimSpace(owner) != "999" {
		t.Errorf("the data directory on the volume belongs to user %q, want 999", owner)
	}

	// Names, by service and by pod; none from outside.
	for _, name := range []string{"postgres", "postgres.prove.svc.cluster.local", "kubernetes.default"} {
		kubectl(t, "exec", "-n", "prove", "client", "--", "getent", "hosts", name)
	}
	if out, err := tryKubectl("exec", "-n", "prove", "client", "--", "getent", "hosts", "example.com"); err == nil {
		t.Errorf("a pod resolves a name from outside: %s", out)
	}

	// A port of the node, from this machine: the broker greets with INFO.
	eventually(t, "the broker's greeting on the node's port", func() error {
		connection, err := net.DialTimeout("tcp", "127.0.0.1:30422", time.Second)
		if err != nil {
			return err
		}
		defer func() { _ = connection.Close() }()
		greeting := make([]byte, 5)
		if err := connection.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if _, err := connection.Read(greeting); err != nil || string(greeting) != "INFO " {
			return fmt.Errorf("got %q, %v", greeting, err)
		}
		return nil
	})

	// A policy shuts the client out, and lets it in by its label.
	ask := func() error {
		out, err := tryKubectl("exec", "-n", "prove", "client", "--", "timeout", "2", "psql", "-h", "postgres", "-U", "postgres", "-tAc", "SELECT 6*7")
		if err != nil || strings.TrimSpace(out) != "42" {
			return fmt.Errorf("got %q, %v", out, err)
		}
		return nil
	}
	eventually(t, "an answer from PostgreSQL", ask)
	kubectl(t, "apply", "-f", "testdata/deny.yaml")
	eventually(t, "silence from PostgreSQL", func() error {
		if ask() == nil {
			return fmt.Errorf("it answers")
		}
		return nil
	})
	kubectl(t, "label", "-n", "prove", "pod/client", "may=query")
	eventually(t, "an answer from PostgreSQL to a client that the policy names", ask)

	eventually(t, "CrashLoopBackOff", func() error {
		out, err := tryKubectl("get", "-n", "prove", "pod/crasher", "-o", "jsonpath={.status.containerStatuses[0].state.waiting.reason}")
		if err != nil || out != "CrashLoopBackOff" {
			return fmt.Errorf("got %q, %v", out, err)
		}
		return nil
	})

	// A volume goes with its claim.
	kubectl(t, "delete", "namespace", "prove", "--timeout=120s")
	eventually(t, "the end of the volume's folder", func() error {
		if left, err := filepath.Glob("/var/lib/watertight-cluster/volumes/*"); err != nil || len(left) > 0 {
			return fmt.Errorf("left: %v, %v", left, err)
		}
		return nil
	})
}

// host is what a cluster could leave on this machine, by kind.
func host(t *testing.T) map[string][]string {
	t.Helper()
	volatile := regexp.MustCompile(`\[\d+:\d+\]|(?m)^#.*$|(valid|preferred)_lft \S+`)
	lines := func(program string, args ...string) []string {
		var kept []string
		for line := range strings.Lines(volatile.ReplaceAllString(read(t, program, args...), "")) {
			if line = strings.TrimSpace(line); line != "" {
				kept = append(kept, line)
			}
		}
		slices.Sort(kept)
		return slices.Compact(kept)
	}
	return map[string][]string{
		"rules":     lines("iptables-save"),
		"rules6":    lines("ip6tables-save"),
		"sets":      lines("ipset", "list", "-name"),
		"addresses": lines("ip", "addr"),
		"routes":    lines("ip", "route", "show", "table", "all"),
		"policy":    lines("ip", "rule"),
		"mounts":    lines("sh", "-c", "cut -d' ' -f1-3 /proc/mounts"),
		"cgroups":   lines("sh", "-c", "find /sys/fs/cgroup -name 'kubepods*' -o -name 'k8s.io*'"),
		"processes": lines("sh", "-c", `for p in /proc/[0-9]*; do readlink $p/exe; done | grep -E '/(kube|kube-router|volumes)-[^/]*$|/containerd' || true`),
		"files": lines("sh", "-c", `find /var/lib/cni /var/lib/kubelet /var/lib/watertight-cluster /run/watertight-cluster /var/run/netns /var/log/pods \
			/var/log/containers /usr/libexec/kubernetes /etc/cni /opt/cni 2>/dev/null || true`),
		"settings": lines("sysctl", "net.ipv4.ip_forward", "net.ipv4.conf.all.route_localnet", "kernel.panic", "kernel.panic_on_oops",
			"vm.overcommit_memory", "fs.inotify.max_user_instances"),
	}
}

func script(t *testing.T, verb string) {
	t.Helper()
	began := time.Now()
	out := read(t, "../../scripts/cluster.sh", verb)
	t.Logf("%s took %.1f s\n%s", verb, time.Since(began).Seconds(), out)
}

func kubectl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := tryKubectl(args...); err != nil {
		state, _ := tryKubectl("get", "pods,pvc,events", "-n", "prove")
		t.Fatalf("kubectl %s: %v\n%s\n%s", strings.Join(args, " "), err, out, state)
	}
}

func tryKubectl(args ...string) (string, error) {
	const dir = "/var/lib/watertight-cluster"
	out, err := exec.Command(dir+"/bin/kubectl", append([]string{"--kubeconfig", dir + "/kubeconfig"}, args...)...).CombinedOutput()
	return string(out), err
}

func read(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// eventually repeats try until it succeeds, for a minute.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within a minute: %v", what, err)
		case <-tick.C:
		}
	}
}
