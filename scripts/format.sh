#!/usr/bin/env bash
# Formats our sources; `format.sh --check` only reports what is not formatted.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

mode=(-i)
if [ "${1:-}" = --check ]; then mode=(--dry-run -Werror); fi
git ls-files -z '*.cc' '*.h' | xargs -0 -r clang-format --style=file "${mode[@]}"
