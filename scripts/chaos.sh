#!/usr/bin/env bash
# Runs the chaos suite against the real shop: CHAOS_SECONDS says for how long (75 by default), CHAOS_SEED repeats a schedule.
# The last line says what was done to the shop and what became of the orders.
set -euo pipefail
cd "$(dirname "$0")/.."
export CHAOS_SECONDS=${CHAOS_SECONDS-75}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
# Faults end at three times CHAOS_SECONDS at the latest; the rest is for the build, the start and the end.
go test -count=1 -v -run '^TestChaos_' -timeout "$((3 * CHAOS_SECONDS + 600))s" ./test/chaos 2>&1 | tee "$log" || code=$?
summary=$(sed -n 's/.*\(chaos: seed .*\)/\1/p' "$log" | tail -n 1)
if ((code == 0)); then
  echo "PASS ${summary:-chaos: nothing was run}"
else
  echo "FAIL ${summary:-chaos: $(grep -om1 'seed [0-9]*' "$log" || echo 'it did not come that far')}"
fi
exit "$code"
