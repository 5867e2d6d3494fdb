#!/usr/bin/env bash
# test.sh [PRESET]: runs the fast tests of a built preset (dev, ci, asan, tsan, slow).
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ctest --preset "${1:-dev}" -j "$(nproc)"
