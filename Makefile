# Thin names over scripts/ and CMakePresets.json. Programs land in build/, models in models/.
.PHONY: help setup setup-train build train models demo test slow bench asan tsan neon fuzz format check clean

help:
	@echo "make demo     set-up, build, default model, and a bounded generation on real text"
	@echo "make test     set-up, build and all fast tests       (make slow: the slow ones)"
	@echo "make build    programs into build/                   (make bench: run the benchmarks)"
	@echo "make train    the same with kvbound-train, to train gates (installs libtorch)"
	@echo "make models   fetch the default model into models/   (MODEL=qwen2.5-coder-0.5b: that one too)"
	@echo "make asan     fast tests with address and undefined-behaviour checks"
	@echo "make tsan     fast tests with thread checks"
	@echo "make neon     our kernels' tests on emulated 64-bit ARM"
	@echo "make fuzz     each fuzz target for FUZZ_SECONDS (60)"
	@echo "make format   clang-format on all sources            (make check: only report)"
	@echo "make clean    remove build/ (models/ and .deps/ stay)"

PRESET ?= dev
FUZZ_SECONDS ?= 60
MODEL =

setup:
	@scripts/setup.sh

setup-train:
	@scripts/setup.sh train

build: setup
	@scripts/build.sh release

train: setup-train
	@scripts/build.sh release

models: setup
	@scripts/fetch_model.sh smollm2-135m $(MODEL)

demo: build models
	@scripts/demo.sh

test: setup-train
	@scripts/fetch_model.sh || echo "== going on without the model: tests that read it skip"
	@scripts/build.sh $(PRESET)
	@scripts/test.sh $(PRESET)

slow: setup-train
	@scripts/fetch_model.sh
	@scripts/build.sh dev
	@scripts/test.sh slow

bench: build models
	@scripts/bench.sh

asan: setup
	@scripts/build.sh asan
	@scripts/test.sh asan

tsan: setup
	@scripts/build.sh tsan
	@scripts/test.sh tsan

neon:
	@scripts/setup.sh neon
	@scripts/neon.sh

fuzz:
	@scripts/setup.sh fuzz
	@scripts/build.sh fuzz
	@scripts/fuzz.sh $(FUZZ_SECONDS)

format:
	@scripts/setup.sh format
	@scripts/format.sh

check:
	@scripts/setup.sh format
	@scripts/format.sh --check
	@scripts/check_tree.py

clean:
	rm -rf build
