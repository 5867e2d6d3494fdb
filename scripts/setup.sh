#!/usr/bin/env bash
# Installs what the build needs. Each step is skipped when it is done.
#   setup.sh           compiler, libraries, ggml and llama
#   setup.sh format    also clang-format
#   setup.sh fuzz      also clang and libFuzzer
#   setup.sh neon      only a compiler for 64-bit ARM and an emulator
#   setup.sh train     also libtorch, to train gates, and a BLAS that is fast
# KVBOUND_OWN_GGML=1   builds the pinned ggml and llama even where the distribution has them.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

deps=.deps/llama
packages=(g++ cmake ninja-build git python3 python3-pip libcli11-dev nlohmann-json3-dev
  libspdlog-dev libhwy-dev libgtest-dev libbenchmark-dev)
case "${1:-}" in
  format) packages+=(clang-format) ;;
  fuzz) packages+=(clang libclang-rt-dev) ;;
  neon) packages=(g++-aarch64-linux-gnu qemu-user-static googletest libhwy-dev) ;;
  train) packages+=(libtorch-dev libgloo-dev libopenblas0-pthread) ;;
  "") ;;
  *) die "setup.sh: expected format, fuzz, neon or train, found '$1'" ;;
esac

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
packaged() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'; }

install_packages() {
  local missing=() name
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "not a Debian system: expecting these (or their like) to be installed: ${packages[*]}"
    return
  fi
  for name in "${packages[@]}"; do installed "$name" || missing+=("$name"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" -eq 0 ] || die "packages are missing and this user may not install them" \
    "run as root, then try again:" "  apt-get update && apt-get install -y ${missing[*]}"
  need_space /usr 1000 "installing packages"
  say "installing ${missing[*]}"
  local log apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
  log=$(mktemp)
  if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1 &&
    ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } \
      >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    die "apt-get could not install: ${missing[*]}" \
      "no network, or no such package in this distribution? The command was:" \
      "  apt-get update && apt-get install -y ${missing[*]}"
  fi
  rm -f "$log"
}

# Version of the package and kind of processor: the build is native, so a checkout that moved to
# another processor builds again.
stamp() {
  grep -v '^#' scripts/llama.txt
  grep -m1 -E '^model name' /proc/cpuinfo || uname -m
  grep -m1 -E '^(flags|Features)' /proc/cpuinfo | sha256sum
}

# Prints ninja's last "[done/all]" of the log, every few seconds, until the process $1 ends.
show_progress() {
  local step last=""
  while kill -0 "$1" 2>/dev/null; do
    sleep 3
    step=$(grep -aoE '\[[0-9]+/[0-9]+\]' "$2" | tail -n 1 || true)
    if [ -t 1 ] && [ "$step" != "$last" ]; then printf '\r   compiled %s ' "$step"; fi
    last=$step
  done
  if [ -t 1 ]; then printf '\r%*s\r' 40 ''; fi
}

build_llama() {
  local new=.deps/llama.new log=.deps/build.log start=$SECONDS pid
  mkdir -p .deps
  need_space .deps 300 "ggml and llama"
  need_space "${TMPDIR:-/tmp}" 1000 "building ggml and llama"
  find_python
  say "building ggml and llama for this processor (about 5 minutes on 2 cores; log: $log)"
  rm -rf "$new"
  # Only the two libraries of llama.cpp's own tree: neither the Python binding's extras nor tools.
  SKBUILD_CMAKE_SOURCE_DIR=vendor/llama.cpp SKBUILD_WHEEL_PACKAGES="" CMAKE_ARGS="\
-DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF \
-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF \
-DGGML_CCACHE=OFF -DCMAKE_INSTALL_RPATH=\$ORIGIN" \
    "$python" -m pip install -v --no-input --disable-pip-version-check --no-cache-dir \
    --no-deps --no-binary llama-cpp-python --require-hashes -r scripts/llama.txt \
    --target "$new" >"$log" 2>&1 &
  pid=$!
  show_progress "$pid" "$log"
  if ! wait "$pid"; then
    tail -n 20 "$log" >&2
    rm -rf "$new"
    die "ggml and llama could not be built: $(why_pip_failed "$log")"
  fi
  [ -e "$new/lib/libllama.so" ] && [ -e "$new/lib/cmake/ggml/ggml-config.cmake" ] ||
    die "the package built, but $new has no libllama.so with its CMake package (log: $log)"
  # A wheel holds no symbolic links, so each library came as three equal files.
  local library link
  for library in "$new"/lib/lib*.so.*.*.*; do
    for link in "${library%%.so.*}.so" "${library%.*.*}"; do
      ln -sf "$(basename "$library")" "$link"
    done
  done
  rm -rf "$new/llama_cpp" "$new/bin"
  stamp >"$new/stamp"
  rm -rf "$deps"
  mv "$new" "$deps"
  say "built ggml and llama in $((SECONDS - start)) s"
}

install_packages
if [ -z "${KVBOUND_OWN_GGML:-}" ] && packaged libggml-dev && packaged libllama-dev; then
  packages=(libggml-dev libllama-dev)
  install_packages
elif [ "$(cat "$deps/stamp" 2>/dev/null)" != "$(stamp)" ]; then
  build_llama
fi
