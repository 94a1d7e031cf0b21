package node

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"example.com/watertight/test/cluster/process"
)

// minor is the 34 of v1.34.4.
func minor(version string) string {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

// startControlPlane starts etcd, the API server, the controllers and the scheduler.
func (n *Node) startControlPlane(ctx context.Context) error {
	etcd := []string{
		"--name", nodeName, "--data-dir", n.path("etcd"), "--log-level", "warn",
		// It is gone with the cluster: nothing in it has to survive a power cut.
		"--unsafe-no-fsync",
		"--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", etcdPeerURL, "--initial-advertise-peer-urls", etcdPeerURL, "--initial-cluster", nodeName + "=" + etcdPeerURL,
	}
	key := func(name string) string { return n.path("pki", name) }
	apiserver := []string{
		"--bind-address", nodeIP, "--advertise-address", nodeIP, "--secure-port", apiPort,
		"--etcd-servers", etcdURL, "--service-cluster-ip-range", serviceCIDR,
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--allow-privileged",
		"--client-ca-file", key("ca.crt"), "--tls-cert-file", key("apiserver.crt"), "--tls-private-key-file", key("apiserver.key"),
		"--kubelet-certificate-authority", key("ca.crt"), "--kubelet-preferred-address-types", "InternalIP",
		"--kubelet-client-certificate", key(kubeletClient + ".crt"), "--kubelet-client-key", key(kubeletClient + ".key"),
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", key("serviceaccounts.pub"), "--service-account-signing-key-file", key("serviceaccounts.key"),
	}
	for _, c := range []process.Command{n.component("etcd", "", etcd...), n.component("kube-apiserver", "", apiserver...)} {
		if _, err := n.processes.Ensure(ctx, c); err != nil {
			return err
		}
	}
	err := await(ctx, 2*time.Minute, "API server", func(ctx context.Context) error {
		if !n.processes.Alive("kube-apiserver") || !n.processes.Alive("etcd") {
			return fmt.Errorf("it has ended; see %s and etcd.log there", n.processes.Log("kube-apiserver"))
		}
		_, err := n.kubectl(ctx, "", "get", "--raw", "/readyz")
		return err
	})
	if err != nil {
		return err
	}
	controllers := []string{
		"--kubeconfig", key("kube-controller-manager.kubeconfig"), "--bind-address", "127.0.0.1", "--leader-elect=false",
		"--use-service-account-credentials", "--root-ca-file", key("ca.crt"),
		"--service-account-private-key-file", key("serviceaccounts.key"),
		"--cluster-signing-cert-file", key("ca.crt"), "--cluster-signing-key-file", key("ca.key"),
		"--flex-volume-plugin-dir", n.path("kubelet", "plugins"),
	}
	scheduler := []string{"--kubeconfig", key("kube-scheduler.kubeconfig"), "--bind-address", "127.0.0.1", "--leader-elect=false"}
	for _, c := range []process.Command{
		n.component("kube-controller-manager", "", controllers...), n.component("kube-scheduler", "", scheduler...),
	} {
		if _, err := n.processes.Ensure(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// component is a process that runs one of the components in n.kube.
func (n *Node) component(name, config string, args ...string) process.Command {
	return process.Command{Name: name, Args: append([]string{n.kube, name}, args...), Config: config}
}

// kubectl calls the cluster as its administrator, with input on its standard input.
func (n *Node) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, n.kube, append([]string{"kubectl", "--kubeconfig", n.Kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(failure.Bytes()))
	}
	return out.String(), nil
}
