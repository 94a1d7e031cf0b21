#!/usr/bin/env bash
# apply-shop.sh kind|minikube: installs the shop of k8s/kind or k8s/minikube in the cluster that kubectl points at, with the images in build/images,
# and waits until all of it runs. Called by kind-up.sh and minikube-up.sh; a second call brings in new images.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$1

# Where `make cluster-up` has its kubectl; it counts only if this machine has no other.
PATH=$PATH:/var/lib/watertight-cluster/bin
scripts/load-images.sh
mkdir -p "build/$target"
cat >"build/$target/kustomization.yaml" <<YAML
# Made by scripts/apply-shop.sh: the manifests with the tags of the images in build/images.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../k8s/$target]
components: [../images]
YAML
# The cluster of test/cluster reaches no registry, and Jaeger's image is the one that is not built here.
if [[ $(kubectl config current-context) == watertight ]]; then
  cat >>"build/$target/kustomization.yaml" <<'YAML'
patches:
  - patch: |
      $patch: delete
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: jaeger, namespace: watertight}
YAML
fi
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
