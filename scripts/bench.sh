#!/usr/bin/env bash
# Runs every benchmark of build/bench in its short form, one after the other: a few minutes. The
# tables of docs/benchmarks.md come from each program's full form: no --quick.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

found=0
for program in build/bench/*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  found=1
  say "$program"
  "$program" --quick
done
[ "$found" -eq 1 ] || die "no program in build/bench" "\`make build\` makes them"
