# Sourced by the other scripts: messages and the project's root.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

say() { printf '%s\n' "== $*"; }

die() {
  printf 'error: %s\n' "$1" >&2
  shift
  if [ $# -gt 0 ]; then printf '       %s\n' "$@" >&2; fi
  exit 1
}

# need_space DIR MIB WHAT: stops where the file system of DIR has less than MIB free.
need_space() {
  local free
  free=$(df -Pm "$1" 2>/dev/null | awk 'NR == 2 {print $4}')
  [ "$free" -ge "$2" ] ||
    die "no space: $3 needs $2 MiB in $1, found $free MiB" "free some space and run the command again"
}

# The first Python with pip, into $python.
find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
      python=$candidate
      return
    fi
  done
  die "no Python with pip was found" \
    "on Debian as root: apt-get install -y python3 python3-pip"
}

# why_pip_failed LOG: the likely cause, in words.
why_pip_failed() {
  if grep -qiE 'No space left' "$1"; then
    echo "the disk is full"
  elif grep -qi 'certificate' "$1"; then
    echo "the package index shows a certificate that is not trusted here (behind a proxy? see PIP_CERT)"
  elif grep -qiE 'connection|timed out|resolve|unreachable|No matching distribution|proxy' "$1"; then
    echo "the Python package index cannot be reached (no network?)"
  elif grep -qiE 'do not match the hashes|hash mismatch' "$1"; then
    echo "the downloaded package is not the pinned one (wrong sha256)"
  else
    echo "see the last lines above"
  fi
}
