package node

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"example.com/watertight/test/cluster/binaries"
	"example.com/watertight/test/cluster/process"
)

//go:embed manifests/cluster.yaml
var manifests string

// startServices sets up what runs in the cluster for the cluster, and waits until names resolve.
func (n *Node) startServices(ctx context.Context) error {
	parsed, err := template.New("cluster.yaml").Parse(manifests)
	if err != nil {
		return err
	}
	var objects strings.Builder
	err = parsed.Execute(&objects, map[string]string{"PauseImage": pauseRepository + ":" + pauseTag, "Kube": n.kube, "DNSIP": dnsIP})
	if err != nil {
		return err
	}
	if _, err := n.kubectl(ctx, objects.String(), "apply", "--filename", "-"); err != nil {
		return err
	}
	volumes, err := n.Cache.Get(ctx, binaries.Source{Name: "volumes", Module: filepath.Join(n.Source, "volumes"), Package: "."})
	if err != nil {
		return err
	}
	_, err = n.processes.Ensure(ctx, process.Command{
		Name: "volumes", Args: []string{volumes, "-kubeconfig", n.Kubeconfig(), "-dir", n.path("volumes")},
	})
	if err != nil {
		return err
	}
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", net.JoinHostPort(dnsIP, "53"))
	}}
	err = await(ctx, 2*time.Minute, "DNS", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := resolver.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
		return err
	})
	if err != nil {
		return err
	}
	// Pods are refused while their namespace has none.
	err = await(ctx, time.Minute, "service account", func(ctx context.Context) error {
		_, err := n.kubectl(ctx, "", "get", "serviceaccount", "default")
		return err
	})
	if err != nil {
		return err
	}
	return n.checkProcesses()
}

// checkProcesses finds a process that was started and has ended since.
func (n *Node) checkProcesses() error {
	for _, name := range processNames() {
		if !n.processes.Alive(name) {
			return fmt.Errorf("%s has ended; see %s", name, n.processes.Log(name))
		}
	}
	return nil
}

// processNames has all processes of the node, in the order in which they are to end.
func processNames() []string {
	return []string{
		"kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kube-router", "volumes", "kube-apiserver", "etcd", "containerd",
	}
}
