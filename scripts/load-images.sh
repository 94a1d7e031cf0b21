#!/usr/bin/env bash
# Gives the images in build/images to the cluster that kubectl points at, without a registry: one of kind, of minikube, or
# that of `make cluster-up`. A cluster elsewhere takes its images from a registry.
set -euo pipefail
cd "$(dirname "$0")/.."

# Where `make cluster-up` has its kubectl; it counts only if this machine has no other.
PATH=$PATH:/var/lib/watertight-cluster/bin
scripts/need.sh kubectl
context=$(kubectl config current-context)
# The nodes' architecture, which need not be this machine's.
arch=$(kubectl get nodes --output 'jsonpath={.items[0].status.nodeInfo.architecture}')
shopt -s nullglob
archives=(build/images/*-"$arch".tar)
if ((${#archives[@]} == 0)); then
  echo "no images for $arch in build/images: run make images ARCH=$arch" >&2
  exit 1
fi

case $context in
  watertight) scripts/cluster.sh load "${archives[@]}" ;;
  kind-*)
    for archive in "${archives[@]}"; do
      kind load image-archive --name "${context#kind-}" "$archive"
    done
    ;;
  *)
    if ! command -v minikube >/dev/null || ! minikube --profile "$context" status >/dev/null 2>&1; then
      echo "the context $context belongs neither to kind nor to minikube nor to make cluster-up: push the images to its registry" >&2
      exit 1
    fi
    for archive in "${archives[@]}"; do
      minikube --profile "$context" image load "$archive"
    done
    ;;
esac
