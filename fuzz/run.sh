#!/bin/sh
# Builds the fuzz targets on the stable toolchain (libFuzzer's coverage comes from flags of LLVM, no sanitizer) and runs each
# for a while, on the inputs in corpus/ and on those that earlier runs found.
#
#   fuzz/run.sh [SECONDS] [TARGET...]
#
# Without a target's name all of Cargo.toml, one after another.
#
# Leaves, below ~/.cache/nodevigil/fuzz: found/TARGET, the smallest set of inputs that reaches all code that was reached, and
# failed/TARGET, the inputs that failed.
set -eu
cd "$(dirname "$0")"
seconds=${1:-60}
[ $# -gt 0 ] && shift
targets=${*:-$(sed -n '/^\[\[bin\]\]/{n;s/^name = "\(.*\)"$/\1/p}' Cargo.toml)}

: "${CARGO_TARGET_DIR:=$PWD/target}"
export CARGO_TARGET_DIR
RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions"
export RUSTFLAGS
host=$(rustc -vV | sed -n 's/^host: //p')
nice -n 19 cargo build --quiet --release --locked --target "$host"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/nodevigil/fuzz
for target in $targets; do
  found=$cache/found/$target
  failed=$cache/failed/$target
  mkdir -p "$found" "$failed"
  bin=$CARGO_TARGET_DIR/$host/release/$target
  echo "== $target, $seconds s"
  # A slow input is a failure too: the bound is far above what a linear reader needs for 8 KiB, on a busy machine too.
  # libFuzzer writes new inputs to the first directory only.
  nice -n 19 "$bin" "$found" "corpus/$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=1024 -max_len=8192 \
    -artifact_prefix="$failed/" -print_final_stats=1 -verbosity=0
  # The smallest set that reaches every edge; how often an edge is passed does not count, else thousands were kept.
  merged=$(mktemp -d "$cache/merged.XXXXXX")
  nice -n 19 "$bin" -set_cover_merge=1 -use_counters=0 "$merged" "corpus/$target" "$found" -verbosity=0
  rm -rf "$found"
  mv "$merged" "$found"
  chmod 755 "$found"
  echo "$target: $(find "$found" -type f | wc -l) inputs in $found"
done
