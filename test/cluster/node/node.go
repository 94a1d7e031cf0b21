// Package node runs a one-node Kubernetes on a bare Linux machine, as root: etcd, API server, scheduler, controllers,
// kubelet, kube-proxy, DNS, network policies and volumes, on containerd and runc. It is a cluster for tests, on a machine
// that one can do without: it listens on addresses of its own that nobody else reaches, keeps nothing through Down, and
// there is one of it on a machine.
package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"example.com/watertight/test/cluster/binaries"
	"example.com/watertight/test/cluster/network"
	"example.com/watertight/test/cluster/process"
)

// 198.18.0.0/15 is set aside for tests of networks (RFC 2544), so nothing real can be meant by it.
const (
	nodeName    = "watertight"
	nodeIP      = "198.18.0.1"
	podCIDR     = "198.18.1.0/24"
	serviceCIDR = "198.19.0.0/16"
	apiIP       = "198.19.0.1" // the first of the services
	dnsIP       = "198.19.0.10"
	apiPort     = "6443"
	etcdURL     = "http://127.0.0.1:12379" // not the usual port, which another etcd may have
	etcdPeerURL = "http://127.0.0.1:12380"
	apiURL      = "https://" + nodeIP + ":" + apiPort
)

// Config is where things are.
type Config struct {
	Source string // this module's folder
	Cache  binaries.Cache
	State  string // a folder, for everything that Down removes
	Run    string // a folder on a tmpfs, for sockets and mounts
	// CrashLoopMax is the longest time that the kubelet lets a crashing container wait; Kubernetes has 5 minutes.
	CrashLoopMax time.Duration
	Log          io.Writer
}

// Node is the cluster.
type Node struct {
	Config
	processes process.Folder
	network   network.Plan
	kube      string // the program with all of Kubernetes in it
}

// New describes the cluster; Up starts it.
func New(cfg Config) *Node {
	return &Node{
		Config: cfg, processes: process.Folder(filepath.Join(cfg.State, "processes")),
		network: network.Plan{
			Device: "watertight0", NodeIP: nodeIP, PodCIDR: podCIDR, ServiceCIDR: serviceCIDR, FenceTable: 198,
			SavedSettingsFile: filepath.Join(cfg.State, "settings.json"),
		},
	}
}

// Kubeconfig is the file that says how to reach the cluster, as its administrator.
func (n *Node) Kubeconfig() string { return n.path("kubeconfig") }

// Up builds what is not built, starts what is not running, and returns when the node is Ready and names resolve. What
// runs with the settings it should have is left alone.
func (n *Node) Up(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("a cluster needs root: it makes network devices, mounts and cgroups")
	}
	began := time.Now()
	stages := []struct {
		name string
		run  func(context.Context) error
	}{
		{"packages", n.installPackages},
		{"programs", n.getPrograms},
		{"network", n.network.Up},
		{"certificates", func(context.Context) error { return n.makeCertificates() }},
		{"containerd", n.startContainerd},
		{"API server", n.startControlPlane},
		{"node", n.startNode},
		{"cluster services", n.startServices},
	}
	for _, dir := range []string{string(n.processes), n.path("volumes"), n.Run} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("folders: %w", err)
		}
	}
	for _, stage := range stages {
		if err := stage.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", stage.name, err)
		}
		fmt.Fprintf(n.Log, "%5.1f s  %s\n", time.Since(began).Seconds(), stage.name)
	}
	return nil
}

func (n *Node) path(elements ...string) string {
	return filepath.Join(append([]string{n.State}, elements...)...)
}

func (n *Node) getPrograms(ctx context.Context) error {
	var err error
	if n.kube, err = n.Cache.Get(ctx, n.kubeSource()); err != nil {
		return err
	}
	if err := os.MkdirAll(n.path("bin"), 0o755); err != nil {
		return err
	}
	kubectl := n.path("bin", "kubectl")
	if err := os.Remove(kubectl); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Symlink(n.kube, kubectl)
}

func (n *Node) kubeSource() binaries.Source {
	const version = "k8s.io/component-base/version."
	return binaries.Source{
		Name: "kube", Module: filepath.Join(n.Source, "kube"), Package: ".", VersionOf: "k8s.io/kubernetes",
		// The components compare their versions, and a module build knows none.
		Flags: func(v string) string {
			return "-X " + version + "gitVersion=" + v + " -X " + version + "gitMajor=1 -X " + version + "gitMinor=" + minor(v) +
				" -X " + version + "gitCommit=module -X " + version + "gitTreeState=clean -X " + version + "buildDate=1970-01-01T00:00:00Z"
		},
	}
}

// Alone calls change once no other process on this machine changes the cluster. The lock is on a folder that is there
// anyway, so that it leaves nothing behind, and ends with its process.
func Alone(ctx context.Context, change func(context.Context) error) error {
	folder, err := os.Open("/run")
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	defer func() { _ = folder.Close() }()
	err = await(ctx, time.Hour, "the end of another change to the cluster", func(context.Context) error {
		return syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	})
	if err != nil {
		return err
	}
	return change(ctx)
}

// await calls probe until it succeeds. The error says what was waited for, and why it did not come.
func await(ctx context.Context, limit time.Duration, what string, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %w", what, limit, err)
		case <-tick.C:
		}
	}
}
