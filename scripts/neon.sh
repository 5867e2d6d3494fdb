#!/usr/bin/env bash
# Compiles our kernels for 64-bit ARM and runs their tests under user-mode emulation.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

out=build/neon
gtest=/usr/src/googletest/googletest
mkdir -p "$out/include"
# Highway's headers are the same on every machine, the rest of /usr/include is not.
ln -sfn /usr/include/hwy "$out/include/hwy"
flags=(-std=c++20 -O2 -UNDEBUG -static -march=armv8-a+crypto -DHWY_COMPILE_ONLY_STATIC
  -Isrc -Iinclude -Itests -isystem "$out/include" -isystem "$gtest/include" -isystem "$gtest")
say "compiling for aarch64"
aarch64-linux-gnu-g++ "${flags[@]}" -o "$out/attention_test" tests/kernels/attention_test.cc \
  tests/testing/attention_case.cc src/kernels/attention{,_few,_tile}.cc \
  src/base/{options,status,strings}.cc "$gtest"/src/gtest{-all,_main}.cc -pthread
say "running under emulation"
qemu-aarch64-static "$out/attention_test" --gtest_brief=1
