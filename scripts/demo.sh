#!/usr/bin/env bash
# Reads a text of several times the budget and continues it, inside a cache that never grows.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

command=(build/kvbound run -m models/smollm2-135m-instruct-q4_1.gguf -f examples/dracula.txt
  --budget 512 --chunk 128 --policy counter-causal-fast --temp 0.7 --seed 1 -n 200)
say "${command[*]}"
exec "${command[@]}"
