package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"example.com/watertight/test/cluster/binaries"
	"example.com/watertight/test/cluster/process"
)

// startNode starts what every node runs, and waits until the kubelet that runs now has said that it is Ready.
func (n *Node) startNode(ctx context.Context) error {
	if err := n.write("resolv.conf", ""); err != nil { // pods must not ask the host's name servers
		return err
	}
	kubelet := n.kubeletConfig()
	if err := n.write("kubelet.yaml", kubelet); err != nil {
		return err
	}
	proxy := n.proxyConfig()
	if err := n.write("kube-proxy.yaml", proxy); err != nil {
		return err
	}
	started, err := n.processes.Ensure(ctx, n.component("kubelet", kubelet,
		"--config", n.path("kubelet.yaml"), "--kubeconfig", n.path("pki", "kubelet.kubeconfig"),
		"--root-dir", n.path("kubelet"), "--hostname-override", nodeName, "--node-ip", nodeIP))
	if err != nil {
		return err
	}
	if _, err := n.processes.Ensure(ctx, n.component("kube-proxy", proxy, "--config", n.path("kube-proxy.yaml"))); err != nil {
		return err
	}
	err = await(ctx, 2*time.Minute, "node", func(ctx context.Context) error {
		condition, err := n.kubectl(ctx, "", "get", "node", nodeName, "-o",
			`jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.lastHeartbeatTime} {.message}{end}`)
		if err != nil {
			return err
		}
		var ready, at string
		if _, err := fmt.Sscan(condition, &ready, &at); err != nil {
			return errors.New("it has not said yet whether it is Ready")
		}
		heard, err := time.Parse(time.RFC3339, at)
		// Whole seconds: one that is said in the second of the start counts.
		if ready != "True" || err != nil || heard.Before(started.Truncate(time.Second)) {
			return fmt.Errorf("not Ready: %s; see %s", condition, n.processes.Log("kubelet"))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return n.startPolicies(ctx)
}

// startPolicies starts kube-router, for the one thing of all it can do that kube-proxy does not: NetworkPolicies. It ends
// where the node is not registered yet.
func (n *Node) startPolicies(ctx context.Context) error {
	router, err := n.Cache.Get(ctx, binaries.Source{
		Name: "kube-router", Module: filepath.Join(n.Source, "kube-router"),
		Package: "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router", VersionOf: "github.com/cloudnativelabs/kube-router/v2",
	})
	if err != nil {
		return err
	}
	_, err = n.processes.Ensure(ctx, process.Command{Name: "kube-router", Args: []string{
		router, "--kubeconfig", n.Kubeconfig(), "--hostname-override", nodeName, "--service-cluster-ip-range", serviceCIDR,
		"--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--enable-cni=false", "--health-port", "0",
	}})
	return err
}

func (n *Node) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %s
healthzBindAddress: 127.0.0.1
readOnlyPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %q}}
authorization: {mode: Webhook}
tlsCertFile: %q
tlsPrivateKeyFile: %q
clusterDomain: cluster.local
clusterDNS: [%s]
resolvConf: %q
containerRuntimeEndpoint: %q
cgroupDriver: cgroupfs
failCgroupV1: false # there are hosts that have nothing newer
failSwapOn: false
podLogsDir: %q
volumePluginDir: %q
# Images come from files here: one that is collected does not come back.
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%}
featureGates: {KubeletCrashLoopBackOffMax: true}
crashLoopBackOff: {maxContainerRestartPeriod: %s}
`, nodeIP, n.path("pki", "ca.crt"), n.path("pki", "kubelet-server.crt"), n.path("pki", "kubelet-server.key"), dnsIP,
		n.path("resolv.conf"), "unix://"+n.socket(), n.path("logs"), n.path("kubelet", "plugins"), n.CrashLoopMax)
}

func (n *Node) proxyConfig() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
hostnameOverride: %s
clientConnection: {kubeconfig: %q}
clusterCIDR: %s
detectLocalMode: ClusterCIDR
nodePortAddresses: [127.0.0.0/8, %s/32] # of this machine only
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s} # the host's stay as they are
`, nodeName, n.path("pki", "kube-proxy.kubeconfig"), podCIDR, nodeIP)
}
