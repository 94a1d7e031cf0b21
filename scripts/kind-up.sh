#!/usr/bin/env bash
# The shop on kind: makes the cluster unless it is there, builds the images, loads and installs them, waits, and says what to open. Needs docker, kind
# and kubectl. `kind delete cluster --name watertight` (make kind-down) removes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."

name=watertight
crash_loop_max=20s
scripts/need.sh docker kind kubectl

# create makes the cluster; the lines on standard input go into the kubelet's configuration.
create() {
  local patch
  patch=$(sed 's/^/      /')
  mkdir -p build
  cat >build/kind.yaml <<YAML
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
  - role: control-plane
    # A mapped port goes through the Service like any client; kubectl port-forward would hold on to one pod, and make every rollout look lossy.
    extraPortMappings:
      - {listenAddress: 127.0.0.1, hostPort: 8080, containerPort: 30080}
      - {listenAddress: 127.0.0.1, hostPort: 16686, containerPort: 30686}
    kubeadmConfigPatches:
    - |
      kind: KubeletConfiguration
$patch
YAML
  kind create cluster --name "$name" --config build/kind.yaml
}

if kind get clusters 2>/dev/null | grep -qx "$name"; then
  echo "kind: the cluster $name is there already"
  kubectl config use-context "kind-$name"
elif ! create <<<"featureGates: {KubeletCrashLoopBackOffMax: true}
crashLoopBackOff: {maxContainerRestartPeriod: $crash_loop_max}"; then
  echo "kind: trying again without a lower limit for CrashLoopBackOff, which the kubelet of this kind may not know"
  kind delete cluster --name "$name"
  crash_loop_max=5m
  create <<<''
fi

# Where Docker runs in another machine, that one's architecture is what counts.
ARCH=$(docker version --format '{{.Server.Arch}}') scripts/images.sh
scripts/apply-shop.sh kind
scripts/after-install.sh "$crash_loop_max" 'make kind-down'
