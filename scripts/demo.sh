#!/usr/bin/env bash
# Reads a text of several times the budget and continues it, inside a cache that never grows: with
# the default policy, with the trained gates that come with the default model, and past a position
# limit that the text is longer than, as a text without end is past the trained context.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

common=(build/kvbound run -m models/smollm2-135m-instruct-q4_1.gguf -f examples/dracula.txt
  --temp 0.7 --repeat-penalty 1.1 --seed 1)
for policy in "--policy counter-causal-fast --budget 512 --chunk 128 -n 200" \
  "--policy retention --gates gates/smollm2-135m-instruct.gguf --budget 256 --chunk 64 -n 100" \
  "--policy streaming --budget 256 --chunk 64 --position-limit 1024 -n 100"; do
  read -ra options <<<"$policy"
  say "${common[*]} ${options[*]}"
  "${common[@]}" "${options[@]}"
done
