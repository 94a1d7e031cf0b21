#!/usr/bin/env bash
# Says in one line what is missing on this machine, before a longer error would: need.sh PROGRAM…
# "cc" stands for the C compiler that Go uses.
set -euo pipefail

for program in "$@"; do
  case $program in
    go) why="Go 1.26 or newer: https://go.dev/doc/install" ;;
    npm) why="Node.js with npm (Debian, Ubuntu: apt-get install npm); buf, which checks and generates the contracts, comes through it" ;;
    cc)
      "$0" go
      # CC may carry flags.
      read -r program _ <<<"$(go env CC)"
      why="a C compiler (Debian, Ubuntu: apt-get install gcc libc6-dev); Go's race detector is linked with it"
      ;;
    docker) why="Docker: https://docs.docker.com/engine/install" ;;
    kind) why="kind: https://kind.sigs.k8s.io/docs/user/quick-start" ;;
    minikube) why="minikube: https://minikube.sigs.k8s.io/docs/start" ;;
    kubectl) why="kubectl: https://kubernetes.io/docs/tasks/tools" ;;
    *) why="$program" ;;
  esac
  if ! command -v "$program" >/dev/null; then
    echo "$program not found. Needed: $why" >&2
    exit 1
  fi
done
