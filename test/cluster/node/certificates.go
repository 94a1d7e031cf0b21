package node

import (
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"strings"

	"example.com/watertight/test/cluster/pki"
)

// kubeletClient is the API server when it calls the kubelet; manifests/cluster.yaml gives it the rights.
const kubeletClient = "kube-apiserver-kubelet-client"

// users are those who call the API server, by the component that they are.
func users() map[string]struct{ name, group string } {
	return map[string]struct{ name, group string }{
		"admin":                   {"watertight-admin", "system:masters"},
		"kube-controller-manager": {"system:kube-controller-manager", ""},
		"kube-scheduler":          {"system:kube-scheduler", ""},
		"kube-proxy":              {"system:kube-proxy", "system:node-proxier"},
		"kubelet":                 {"system:node:" + nodeName, "system:nodes"},
	}
}

// makeCertificates fills the folder pki, unless it is complete already: nothing that runs would know of new ones.
func (n *Node) makeCertificates() error {
	complete := n.path("pki", "complete")
	if _, err := os.Stat(complete); err == nil {
		return nil
	}
	dir := n.path("pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	ca, err := pki.NewAuthority(dir, "ca")
	if err != nil {
		return err
	}
	here := []net.IP{net.ParseIP(nodeIP), net.IPv4(127, 0, 0, 1)}
	apiNames := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	if _, err := ca.Server("apiserver", "kube-apiserver", apiNames, append(here, net.ParseIP(apiIP))); err != nil {
		return err
	}
	if _, err := ca.Server("kubelet-server", "system:node:"+nodeName, []string{nodeName}, here); err != nil {
		return err
	}
	if _, err := ca.Client(kubeletClient, kubeletClient); err != nil {
		return err
	}
	key, keyPEM, err := pki.NewKey()
	if err != nil {
		return err
	}
	public, err := pki.PublicPEM(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(n.path("pki", "serviceaccounts.key"), keyPEM, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(n.path("pki", "serviceaccounts.pub"), public, 0o644); err != nil {
		return err
	}
	for component, user := range users() {
		var groups []string
		if user.group != "" {
			groups = append(groups, user.group)
		}
		pair, err := ca.Client(component, user.name, groups...)
		if err != nil {
			return err
		}
		file := n.path("pki", component+".kubeconfig")
		if component == "admin" {
			file = n.Kubeconfig()
		}
		if err := os.WriteFile(file, kubeconfig(ca.CertPEM, pair), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(complete, nil, 0o644)
}

func kubeconfig(ca []byte, user pki.Pair) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return []byte(strings.TrimLeft(fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters:
  - name: watertight
    cluster: {server: %q, certificate-authority-data: %s}
users:
  - name: watertight
    user: {client-certificate-data: %s, client-key-data: %s}
contexts:
  - name: watertight
    context: {cluster: watertight, user: watertight}
current-context: watertight
`, apiURL, b64(ca), b64(user.CertPEM), b64(user.KeyPEM)), "\n"))
}
