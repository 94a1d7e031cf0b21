#!/usr/bin/env bash
# Puts promtool, which tests alerts, into .watertight/tools: out of the distribution's package prometheus, of which nothing else
# is installed and nothing runs. On systems other than Debian and Ubuntu it does nothing, and the tests that need promtool are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

target=.watertight/tools/promtool
if command -v promtool >/dev/null || [[ -x $target ]]; then
  exit
fi
if ! command -v apt-get >/dev/null; then
  echo "promtool not found, and not a system with apt-get: the alerts' tests are skipped (macOS: brew install prometheus)" >&2
  exit
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
{
  # The lists of packages may be missing or too old; only root may fetch them.
  ((EUID != 0)) || apt-get -qq update
  (cd "$folder" && apt-get -qq -o APT::Sandbox::User=root download prometheus)
} </dev/null >&2 || {
  echo "promtool not found, and apt-get does not give it: the alerts' tests are skipped" >&2
  exit
}
dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb | tar -x -C "$folder" ./usr/bin/promtool
mkdir -p "${target%/*}"
mv "$folder/usr/bin/promtool" "$target"
