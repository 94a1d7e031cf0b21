#!/usr/bin/env bash
# Builds the shop's images into build/images: one archive for each image and architecture, and beside it the list of what is in it (SPDX).
#   ARCH="amd64 arm64"     the architectures (both by default)
#   IMAGES="gateway recs"  only these images
# values.yaml (for helm) and kustomization.yaml (a component for kubectl apply -k) there name the tags of all that were built.
set -euo pipefail
cd "$(dirname "$0")/.."

release=$(sed -n 's/^appVersion: *"\{0,1\}\([^" ]*\).*/\1/p' helm/watertight/Chart.yaml)
arch=${ARCH-amd64 arm64}
GOWORK=off go build -C tools/images -buildvcs=false -o ../../.watertight/tools/images .
# The names are words of their own.
# shellcheck disable=SC2086
exec .watertight/tools/images -release "$release" -arch "$(tr -s ' ' ',' <<<"$arch" | sed 's/^,//;s/,$//')" -- ${IMAGES-}
