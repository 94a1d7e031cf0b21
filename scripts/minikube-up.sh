#!/usr/bin/env bash
# The shop on minikube with Docker: makes the cluster unless it is there, builds the images, loads and installs them, waits, and says what to open.
# Needs docker, minikube and kubectl. `minikube delete --profile watertight-minikube` (make minikube-down) removes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=watertight-minikube
scripts/need.sh docker minikube kubectl

if minikube --profile "$profile" status >/dev/null 2>&1; then
  echo "minikube: $profile is there already"
  kubectl config use-context "$profile"
else
  # Mapped ports go through the Services like any client. Calico, as minikube's own network does not enforce NetworkPolicies.
  minikube start --profile "$profile" --driver docker --cni calico --ports 127.0.0.1:8080:30080 --ports 127.0.0.1:16686:30686
fi

# Where Docker runs in another machine, that one's architecture is what counts.
ARCH=$(docker version --format '{{.Server.Arch}}') scripts/images.sh
scripts/apply-shop.sh minikube
scripts/after-install.sh 5m 'make minikube-down'
