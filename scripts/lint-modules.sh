#!/usr/bin/env bash
# Checks that each module of the workspace stands by itself: it builds with GOWORK=off, tests included, and its go.mod and
# go.sum are what `go mod tidy` would write.
set -euo pipefail
cd "$(dirname "$0")/.."

dirs=$(go list -m -f '{{.Dir}}')
export GOWORK=off
status=0
while read -r dir; do
  name=${dir#"$PWD"/}
  echo "$name: go vet ./... && go mod tidy -diff"
  go -C "$dir" vet ./... || status=1
  if ! untidy=$(go -C "$dir" mod tidy -diff); then
    head -n 20 <<<"$untidy"
    echo "$name: not tidy; run: (cd $name && GOWORK=off go mod tidy)" >&2
    status=1
  fi
done <<<"$dirs"
exit "$status"
