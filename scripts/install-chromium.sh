#!/usr/bin/env bash
# Looks for what the browser tests need, Chromium and axe-core, and gets what is missing: Chromium from the distribution, but only
# as root on Debian or Ubuntu, and axe-core through npm. Where it cannot, it says so and is content: those tests are then
# skipped, and only CI insists on them.
set -euo pipefail
cd "$(dirname "$0")/.."

find_chromium() {
  local program
  # The places that the tests look in.
  for program in ${CHROMIUM:+"$CHROMIUM"} chromium chromium-browser google-chrome \
    '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome' /Applications/Chromium.app/Contents/MacOS/Chromium; do
    command -v "$program" >/dev/null && return
  done
  return 1
}

install_chromium() {
  # Ubuntu's package of that name is a shell around snap, which does not run everywhere.
  if ((EUID != 0)) || ! command -v apt-get >/dev/null || ! grep -qs '^ID=debian' /etc/os-release; then
    echo "Chromium not found: the browser tests are skipped. Install it, or set CHROMIUM to one" >&2
    return
  fi
  echo "Chromium not found: installing the distribution's package" >&2
  export DEBIAN_FRONTEND=noninteractive
  {
    apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium fonts-liberation
  } </dev/null >&2 || echo "apt-get failed: the browser tests are skipped" >&2
}

find_chromium || install_chromium

if [[ ! -e tools/node_modules/axe-core/axe.min.js ]]; then
  if command -v npm >/dev/null; then
    (cd tools && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) ||
      echo "npm failed: the browser tests that need axe-core are skipped" >&2
  else
    echo "axe-core not found, and no npm to get it: the browser tests that need it are skipped" >&2
  fi
fi
