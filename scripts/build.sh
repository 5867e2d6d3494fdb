#!/usr/bin/env bash
# build.sh PRESET [TARGET...]: configures (once) and builds a CMake preset.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=${1:?build.sh: expected a preset of CMakePresets.json}
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
say "building (preset $preset)"
if ! cmake --preset "$preset" >"$log" 2>&1; then
  cat "$log" >&2
  die "cmake could not configure preset $preset" "a missing package? \`make setup\` installs them"
fi
# One compiler needs up to 1 GiB, so memory limits the jobs as well as the cores.
memory_gib=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
jobs=$(nproc)
if [ "$memory_gib" -lt "$jobs" ]; then jobs=$((memory_gib > 0 ? memory_gib : 1)); fi
cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}
