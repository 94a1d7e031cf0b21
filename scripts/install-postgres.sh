#!/usr/bin/env bash
# Makes sure that PostgreSQL's programs are on this machine: the tests start a server of their own from them. Installs the
# distribution's package, but only as root on Debian or Ubuntu; elsewhere it says what to install. It touches no server.
set -euo pipefail

find_postgres() {
  local program
  # A folder that PG_BIN names, the PATH, then where distributions put it: the places that the tests look in.
  for program in ${PG_BIN:+"$PG_BIN/postgres"} "$(command -v postgres || true)" \
    /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres \
    /opt/homebrew/opt/postgresql*/bin/postgres /usr/local/opt/postgresql*/bin/postgres; do
    [[ -n $program && -x $program ]] && return
  done
  return 1
}

if [[ -n ${TEST_DATABASE_URL-} ]]; then
  exit # the tests use that server
fi
if find_postgres; then
  exit
fi
if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
  echo "PostgreSQL not found. Install its server (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql@17)" >&2
  exit 1
fi
echo "PostgreSQL not found: installing the distribution's package" >&2
export DEBIAN_FRONTEND=noninteractive
{
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends postgresql
} </dev/null >&2
if ! find_postgres; then
  echo "the package postgresql is installed, but no server program was found in the usual folders" >&2
  exit 1
fi
