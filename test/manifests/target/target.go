// Package target says which files of the repository are made from the chart, and makes them: the manifests below k8s/, one
// folder for each kind of cluster, and the chart's own copy of the broker's configuration. It writes nothing to disk.
package target

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"example.com/watertight/lab/natsserver"
	"example.com/watertight/test/manifests/chart"
)

// ChartDir is the chart's folder, from the root of the repository.
const ChartDir = "helm/watertight"

// NATSConfig is the broker's configuration in the chart, from the root of the repository.
const NATSConfig = ChartDir + "/files/nats.conf"

const header = "# Made by `make manifests`; a change here is lost.\n"

// Targets are the kinds of cluster, each with the file of its values, from the root of the repository.
func Targets() map[string]string {
	return map[string]string{
		"kind":     "k8s/kind/values.yaml",
		"minikube": "k8s/minikube/values.yaml",
		"prod":     ChartDir + "/values-prod.yaml",
	}
}

// Manifests makes the files of every target, by their paths from root.
func Manifests(root string) (map[string][]byte, error) {
	loaded, err := chart.Load(filepath.Join(root, ChartDir))
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for name, file := range Targets() {
		values, err := chart.ReadValues(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		rendered, err := loaded.Render(values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for base, content := range folder(rendered.Objects, file) {
			out[path.Join("k8s", name, base)] = content
		}
	}
	return out, nil
}

// folder is one target's: a file for each part of the shop, the namespace, and what `kubectl apply -k` reads first.
func folder(objects []chart.Object, valuesFile string) map[string][]byte {
	parts := map[string]*bytes.Buffer{"namespace": bytes.NewBufferString(header + namespace)}
	for _, o := range objects {
		if o.Hook() { // helm runs tests, and nobody else
			continue
		}
		part, there := parts[o.Component()]
		if !there {
			part = bytes.NewBufferString(header)
			parts[o.Component()] = part
		} else {
			part.WriteString("---\n")
		}
		part.WriteString(o.Source)
	}
	kustomization := bytes.NewBufferString(header + "# From " + ChartDir + " with the values in " + valuesFile + ".\n")
	kustomization.WriteString("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: " + chart.Release + "\nresources:\n")
	out := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		fmt.Fprintf(kustomization, "  - %s.yaml\n", name)
		out[name+".yaml"] = parts[name].Bytes()
	}
	out["kustomization.yaml"] = kustomization.Bytes()
	return out
}

// namespace lets no pod in that could do more than the shop's: a chart cannot make the namespace that it is installed into.
const namespace = `apiVersion: v1
kind: Namespace
metadata:
  name: ` + chart.Release + `
  labels:
    app.kubernetes.io/part-of: watertight
    pod-security.kubernetes.io/enforce: restricted
    pod-security.kubernetes.io/enforce-version: latest
    pod-security.kubernetes.io/audit: restricted
    pod-security.kubernetes.io/audit-version: latest
    pod-security.kubernetes.io/warn: restricted
    pod-security.kubernetes.io/warn-version: latest
`

// NATSConf is the content of NATSConfig: what lab runs its own broker with, users and permissions included, in a pod's
// places. The passwords are taken from the server's environment, by PasswordVariable.
func NATSConf() ([]byte, error) {
	config := natsserver.Config{Host: "0.0.0.0", Port: 4222, StoreDir: "/data", Passwords: map[string]string{}}
	for _, user := range append(natsserver.Users(), natsserver.Admin) {
		config.Passwords[user] = "$" + PasswordVariable(user)
	}
	content, err := config.File()
	if err != nil {
		return nil, fmt.Errorf("NATS configuration: %w", err)
	}
	for _, reference := range config.Passwords { // in quotes it would be the password itself
		content = strings.Replace(content, `password: "`+reference+`"`, "password: "+reference, 1)
	}
	_, content, _ = strings.Cut(content, "\n") // lab's own header
	return []byte(header + "# The users and what each may do: lab/natsserver.\n" + content + "http: \"0.0.0.0:8222\" # for the probes\n"), nil
}

// PasswordVariable is the server's variable with the password of a broker's user.
func PasswordVariable(user string) string { return strings.ToUpper(user) + "_PASSWORD" }
