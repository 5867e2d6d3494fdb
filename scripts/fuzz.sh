#!/usr/bin/env bash
# fuzz.sh [SECONDS] [NAME...]: runs fuzz targets for SECONDS each, from the seeds in
# fuzz/corpus/NAME. What is found grows in build/fuzz/corpus, crashes in build/fuzz.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

seconds=${1:-60}
shift || true
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for program in build/fuzz/*_fuzz; do names+=("$(basename "$program")"); done
fi
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
for name in "${names[@]}"; do
  say "$name for $seconds s"
  mkdir -p "build/fuzz/corpus/$name"
  seeds=()
  if [ -d "fuzz/corpus/$name" ]; then seeds=("fuzz/corpus/$name"); fi
  "build/fuzz/$name" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" "${seeds[@]}" 2>&1 |
    grep -vE '^#[0-9]+\s+(NEW|REDUCE|pulse)' | tail -n 30
done
