#!/usr/bin/env bash
# The contracts in proto/:
#   proto.sh generate   writes the generated Go code beside the .proto files, and removes what has no .proto any more; and the
#                       handler that the benchmarks compare the gateway with
#   proto.sh check      style (buf lint, buf format), no breaking change, generated code as `generate` would write it
# It needs no schema registry. Breaking changes are looked for against the last landed main: the commit where HEAD left
# origin/main; if that is HEAD itself or unknown, HEAD when proto/ has changes that are not committed, else HEAD's parent.
# BREAKING_BASE=REVISION overrides that.
set -euo pipefail
cd "$(dirname "$0")/.."

buf=tools/node_modules/.bin/buf
deps=.watertight/proto-deps
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# fetch_deps copies the one .proto file that the contracts import from elsewhere out of the Go module that tools/go.mod pins.
fetch_deps() {
  local module
  GOWORK=off go -C tools mod download github.com/bufbuild/protovalidate
  module=$(GOWORK=off go -C tools list -m -f '{{.Dir}}' github.com/bufbuild/protovalidate)
  mkdir -p "$deps/buf/validate"
  # The module cache is read-only; the copy must not be.
  install -m 644 "$module/proto/protovalidate/buf/validate/validate.proto" "$deps/buf/validate/validate.proto"
}

# Where generated files lie: the contracts' own, and the benchmarks' (whose template is beside them).
roots=(proto test/bench/edge/peer)

# generated DIR lists the generated files below DIR, sorted.
generated() { (cd "$1" && find . -name '*.pb.go' -o -name '*.pb.gw.go' | LC_ALL=C sort); }

# generate_into DIR generates everything anew, below DIR.
generate_into() {
  "$buf" generate -o "$1"
  "$buf" generate --template test/bench/edge/peer/buf.gen.yaml -o "$1"
}

generate() {
  generate_into "$scratch"
  local root file
  for root in "${roots[@]}"; do
    while read -r file; do
      cmp -s "$scratch/$root/$file" "$root/$file" && continue
      mkdir -p "$(dirname "$root/$file")"
      cp "$scratch/$root/$file" "$root/$file" && echo "$root/${file#./}"
    done < <(generated "$scratch/$root")
    while read -r file; do
      [[ -e $scratch/$root/$file ]] || { rm "$root/$file" && echo "$root/${file#./} removed"; }
    done < <(generated "$root")
  done
}

check_generated() {
  generate_into "$scratch"
  local root file status=0
  for root in "${roots[@]}"; do
    while read -r file; do
      if ! diff -u "$root/$file" "$scratch/$root/$file" >"$scratch/diff" 2>&1; then
        echo "$root/${file#./} is not what its .proto generates: run make proto" >&2
        head -n 20 "$scratch/diff" >&2
        status=1
      fi
    done < <({ generated "$root" && generated "$scratch/$root"; } | LC_ALL=C sort -u)
  done
  return "$status"
}

# breaking_base prints the commit to compare with, or nothing when there is none.
breaking_base() {
  [[ -e .git ]] || return 0
  if [[ -n ${BREAKING_BASE-} ]]; then
    git rev-parse --verify --quiet "$BREAKING_BASE^{commit}" || { echo "BREAKING_BASE: no commit $BREAKING_BASE" >&2 && return 1; }
    return
  fi
  local head base
  head=$(git rev-parse --verify --quiet HEAD) || return 0
  base=$(git merge-base HEAD origin/main 2>/dev/null || true)
  if [[ -n $base && $base != "$head" ]]; then
    echo "$base"
  elif [[ -n $(git status --porcelain -- proto) ]]; then
    echo "$head"
  else
    git rev-parse --verify --quiet HEAD~1 || true
  fi
}

check_breaking() {
  local base
  base=$(breaking_base)
  if [[ -z $base ]] || ! git cat-file -e "$base:proto" 2>/dev/null || ! git cat-file -e "$base:buf.yaml" 2>/dev/null; then
    echo "buf breaking: no earlier contracts to compare with (first commit, shallow clone, or no git)"
    return
  fi
  echo "buf breaking against $(git log -1 --format='%h %s' "$base")"
  # buf could read the commit itself, but not the import that is in no commit.
  mkdir -p "$scratch/base/$deps"
  git archive "$base" proto buf.yaml | tar -x -C "$scratch/base"
  cp -R "$deps/." "$scratch/base/$deps"
  "$buf" breaking --against "$scratch/base"
}

fetch_deps
case ${1-} in
  generate) generate ;;
  check)
    "$buf" lint
    "$buf" format --diff --exit-code
    check_breaking
    check_generated
    ;;
  *)
    echo "usage: $0 generate|check" >&2
    exit 2
    ;;
esac
