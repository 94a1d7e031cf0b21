#!/usr/bin/env bash
# apply-shop.sh kind|minikube: installs the shop of k8s/kind or k8s/minikube in the cluster that kubectl points at, with the images in build/images,
# and waits until all of it runs. Called by kind-up.sh and minikube-up.sh; a second call brings in new images.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$1

scripts/load-images.sh
mkdir -p "build/$target"
cat >"build/$target/kustomization.yaml" <<YAML
# Made by scripts/apply-shop.sh: the manifests with the tags of the images in build/images.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../k8s/$target]
components: [../images]
YAML
# A job's image cannot be changed, so one that is there makes room for that of the new image.
kubectl delete job --namespace watertight --selector app.kubernetes.io/part-of=watertight --ignore-not-found
kubectl apply --kustomize "build/$target"
# The databases first: what follows waits for them anyway, and this says which one it is.
for workload in statefulset deployment; do
  for object in $(kubectl get "$workload" --namespace watertight --output name); do
    kubectl rollout status "$object" --namespace watertight --timeout=10m
  done
done
kubectl wait job --all --namespace watertight --for=condition=Complete --timeout=20m
