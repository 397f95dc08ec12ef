#!/bin/sh
# Runs one step of `make test`: prints a line with its seconds, and all that it printed if it fails.
#
#   tests/step.sh NAME COMMAND [ARGUMENT...]
#
# Exit code: that of the command.
set -u
name=$1
shift
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
# The command has the signal too. What it printed until then is shown below.
trap : INT TERM
if [ -t 1 ]; then printf '%s ...\r' "$name"; fi

begun=$(date +%s)
"$@" >"$output" 2>&1 </dev/null
status=$?
seconds=$(($(date +%s) - begun))

if [ "$status" != 0 ]; then
  cat "$output"
  echo "$name: failed after $seconds s, exit code $status"
  exit "$status"
fi
echo "$name: $seconds s"
# cargo prints such a line for each program of tests.
awk '/^test result:/ { passed += $4; failed += $6 } END { if (passed + failed) print passed " passed, " failed " failed" }' "$output"
