#!/bin/sh
# Builds the fuzz targets on the stable toolchain (libFuzzer's coverage comes from flags of LLVM, no sanitizer) and runs each
# for a while, on its corpus; a new input that reaches new code is kept there.
#
#   fuzz/run.sh [SECONDS] [TARGET...]
#
# Without a target's name all of Cargo.toml, one after another.
#
# Leaves: fuzz/corpus/TARGET (minimized), fuzz/artifacts/TARGET for an input that failed.
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

for target in $targets; do
  mkdir -p "corpus/$target" "artifacts/$target"
  bin=$CARGO_TARGET_DIR/$host/release/$target
  echo "== $target, $seconds s"
  # A slow input is a failure too: the bound is far above what a linear reader needs for 8 KiB, on a busy machine too.
  # The redactor's text is repeated (fuzz/src/secrets.rs): what takes too much of time or memory is seen within these bounds.
  timeout=30 memory=1024
  case $target in redactor | hide_secrets) timeout=10 memory=256 ;; esac
  nice -n 19 "$bin" "corpus/$target" -max_total_time="$seconds" -timeout="$timeout" -rss_limit_mb="$memory" -max_len=8192 \
    -artifact_prefix="artifacts/$target/" -print_final_stats=1 -verbosity=0
  # The smallest set that reaches every edge; how often an edge is passed does not count, else thousands were kept.
  # What a person gave a name that is no hash stays.
  merged=$(mktemp -d)
  nice -n 19 "$bin" -set_cover_merge=1 -use_counters=0 "$merged" "corpus/$target" -verbosity=0
  find "corpus/$target" -type f -name '*-*' -exec cp {} "$merged" \;
  rm -rf "corpus/$target"
  mv "$merged" "corpus/$target"
  chmod 755 "corpus/$target"
  echo "$target: $(find "corpus/$target" -type f | wc -l) inputs kept"
done
