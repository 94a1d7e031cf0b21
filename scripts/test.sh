#!/usr/bin/env bash
# Runs the tests of the given packages with the race detector, in random order, and ends with one line of counts:
#   N passed, N failed[, N skipped]
# A subtest counts as a test. A package that does not build, or dies outside its tests, counts as a failed one.
set -euo pipefail
cd "$(dirname "$0")/.."

# gotestsum calls this same script at its end, with the counts in the environment.
if [[ ${1-} == --count ]]; then
  # The events are one JSON object a line; quotes within a test's own output are escaped there, so they cannot match.
  passed=$(grep -c '"Action":"pass".*"Test":"' "$GOTESTSUM_JSONFILE" || true)
  skipped=$(grep -c '"Action":"skip".*"Test":"' "$GOTESTSUM_JSONFILE" || true)
  failed=$TESTS_FAILED
  # No test at all means that Go could not even load the packages.
  ((passed + failed > 0)) || failed=1
  echo "$passed passed, $failed failed$( ((skipped == 0)) || echo ", $skipped skipped")"
  exit
fi

events=$(mktemp)
trap 'rm -f "$events"' EXIT
# -shuffle also keeps Go from answering with a cached result: some tests look at files that the cache does not know of.
.watertight/tools/gotestsum --format pkgname --format-hide-empty-pkg --hide-summary skipped \
  --jsonfile "$events" --post-run-command 'scripts/test.sh --count' \
  -- -race -shuffle=on -timeout=20m "$@"
