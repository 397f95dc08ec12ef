#!/bin/sh
# `make audit`: whether RustSec's advisories name a crate that we use. The database is a download of its own, renewed first;
# if it cannot be fetched, the present one is used, and its date is printed.
#
#   tests/audit.sh CARGO_DENY
#
# Exit code: 0 none is named, 1 one is, or there is no database.
set -eu
deny=$1
url=https://github.com/RustSec/advisory-db
directory=${CARGO_HOME:-$HOME/.cargo}/advisory-dbs
output=$(mktemp)
trap 'rm -f "$output"' EXIT

if ! "$deny" --locked fetch db >"$output" 2>&1; then
  why=$(sed -n 's/^fatal: //p' "$output" | head -n 1)
  [ -n "$why" ] || why=$(tail -n 1 "$output")
  # advisory-db-HASH, as cargo-deny names it. FETCH_HEAD is written by each renewal, HEAD by the first.
  day=
  for database in "$directory"/advisory-db-*/.git; do
    for file in HEAD FETCH_HEAD; do
      if [ -e "$database/$file" ]; then day=$(date -u -r "$database/$file" +%F); fi
    done
  done
  if [ -z "$day" ]; then
    echo "audit: nothing was checked: RustSec's advisory database is not in $directory, and $url cannot be fetched ($why): run this where it can be, or copy that directory from such a machine" >&2
    exit 1
  fi
  echo "audit: $url cannot be fetched ($why); the database of $day is used" >&2
fi
# Offline, so that the database is not asked for again; but then every crate must be there, those for other systems too.
cargo fetch --quiet --locked
"$deny" --locked --offline check --hide-inclusion-graph advisories
