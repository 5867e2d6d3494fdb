#!/usr/bin/env bash
# Runs every benchmark of build/bench with its default arguments, one after the other.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

found=0
for program in build/bench/*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  found=1
  say "$program"
  "$program"
done
[ "$found" -eq 1 ] || die "no program in build/bench" "\`make build\` makes them"
