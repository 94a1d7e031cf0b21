#!/usr/bin/env bash
# The tests on a real cluster: that which kubectl points at. They install the chart in a namespace of their own, and remove it.
#   E2E=quick       shorter faults
#   E2E_KEEP=1      leave the namespaces there
#   E2E_NAMESPACE   another namespace than watertight-e2e
#   ARGS            for go test, as in ARGS='-run /^c'
set -euo pipefail
cd "$(dirname "$0")/.."

# Where `make cluster-up` has its kubectl; it counts only if this machine has no other.
PATH=$PATH:/var/lib/watertight-cluster/bin
scripts/need.sh kubectl
if ! kubectl version >/dev/null 2>&1; then
  echo "no cluster answers: set KUBECONFIG, or bring one up with make cluster-up, kind-up or minikube-up" >&2
  exit 1
fi
# Without images of our own, the chart's come from their registry.
if compgen -G 'build/images/*.tar' >/dev/null; then
  scripts/load-images.sh
fi
# As `make test` builds it, with the race detector, so that it need not be built twice. ARGS are words of their own.
# shellcheck disable=SC2086
E2E=${E2E:-1} exec go test -race -count=1 -timeout=45m -v ${ARGS-} ./test/e2e
