#!/usr/bin/env bash
# Runs shellcheck over every shell script of the repository, if this machine has it.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v shellcheck >/dev/null; then
  echo "shellcheck not found: the scripts are not checked (Debian, Ubuntu: apt-get install shellcheck)"
  exit
fi
shellcheck .ci/run scripts/*.sh
