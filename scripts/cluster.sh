#!/usr/bin/env bash
# The one-node Kubernetes of test/cluster, on this machine and as root:
#   cluster.sh up           brings it up, or mends it, gives it the images in build/images, and says how to reach it
#   cluster.sh down         removes it, and all that it made
#   cluster.sh load FILE…   gives it the images in these archives
# WATERTIGHT_CACHE       where the programs that were built are kept (~/.cache/watertight)
# WATERTIGHT_CACHE_SEED  a folder of programs that are built already: NAME-VERSION-linux-ARCH.zst
# CRASH_LOOP_MAX         the longest that a crashing container waits for its restart (20s; Kubernetes itself has 5m)
set -euo pipefail
cd "$(dirname "$0")/.."

cluster() {
  .watertight/tools/cluster -cache "${WATERTIGHT_CACHE:-$HOME/.cache/watertight}/bin" -seed "${WATERTIGHT_CACHE_SEED-}" \
    -crash-loop-max "${CRASH_LOOP_MAX:-20s}" "$@"
}

scripts/need.sh go
GOWORK=off go build -C test/cluster -buildvcs=false -o ../../.watertight/tools/cluster .
cluster "$@"
[[ $1 == up ]] || exit 0

KUBECONFIG=$(cluster kubeconfig)
export KUBECONFIG
if compgen -G 'build/images/*.tar' >/dev/null; then
  scripts/load-images.sh
fi
echo "the cluster is up: export KUBECONFIG=$KUBECONFIG"
