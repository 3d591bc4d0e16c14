# Two commands: `make run` trains the toy models against each other, `make test` runs the tests.
# Each sets up what it needs and is quick once that is done.
#   make run ARGS="--config debug"     arguments of driver.py
#   make test ARGS="-k sandbox"        arguments of pytest
#   make bench ARGS="--quick learner"  arguments of python -m benchmarks
#   PYTHON=python3.12 VENV=/a/disk/venv   the interpreter, and where the virtual environment is made
#   TORCH_INDEX="--index-url URL"      where pip finds a CPU-only torch, if you have such an index
#   LOCK=gpu                           CUDA builds of torch and vLLM instead

export PYTHON ?=
VENV ?= .venv
LOCK ?= cpu
export TORCH_INDEX ?=
export NO_MKDOCS_2_WARNING := 1
ARGS ?=
BIN := $(VENV)/bin
# what the judge runs; the other modules of sparring/core are the games' and the learners'
KINDS_OF := docker/engine.sh docker/make_seccomp.py docker/sandbox.Dockerfile sandbox_workers \
	$(addprefix sparring/core/,answers.py commands.py errors.py fences.py interfaces.py settings.py snippets.py source.py verdict.py) \
	tests/attacks tests/honest tests/conftest.py tests/sandboxes.py
KINDS_HASH := git ls-files -z $(KINDS_OF) | xargs -0 sha256sum | sha256sum

.PHONY: help run test test-slow test-nightly test-kinds kinds-unchanged test-all coverage check site bench gpu-check experiments tables engine image images setup .bench

# `make` alone starts nothing: it prints the lines at the top of this file.
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

run: setup
	$(BIN)/python driver.py $(ARGS)

# No run of a test or a benchmark is sent to your account.
test test-slow test-nightly test-kinds coverage bench experiments: export WANDB_API_KEY =
# huggingface_hub reads it when it is imported, which is before a fixture could set it
test test-slow test-nightly test-kinds coverage: export HF_HUB_OFFLINE = 1

# By two workers (tests/conftest.py); ARGS="-n 0 ..." for a debugger.
test: setup
	$(BIN)/python -m pytest -n 2 $(ARGS)

# What takes minutes: real runs on Ray with vLLM, kills.
test-slow: setup
	$(BIN)/python -m pytest -m "slow and not kinds and not nightly" -n 2 $(ARGS)

# What `.ci/run` leaves out: the quick form of each benchmark and experiment, and variants of slow tests.
test-nightly: setup
	$(BIN)/python -m pytest -m "nightly and not kinds" -n 2 $(ARGS)

# Attacks and honest jobs on the other kinds of sandbox than Docker. tests/kinds.lock says for which files all of them passed:
# while these are unchanged, `.ci/run` leaves them out. Commit it with the change.
test-kinds: export SPARRING_REQUIRE_DOCKER = 1
test-kinds: setup
	$(KINDS_HASH) > tests/kinds.new
	$(BIN)/python -m pytest -m kinds -n 2 $(ARGS)
	$(if $(ARGS),rm,mv) tests/kinds.new $(if $(ARGS),,tests/kinds.lock)

kinds-unchanged:
	@$(KINDS_HASH) | cmp --quiet - tests/kinds.lock

test-all: test test-slow test-nightly test-kinds

# Lines that the unit and property tests run; what runs in a sandbox or in another process is not seen.
coverage: setup
	$(BIN)/coverage run -m pytest tests/unit tests/properties $(ARGS)
	$(BIN)/coverage report --skip-covered

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright
	$(BIN)/python -m benchmarks.tables --check
	$(BIN)/mkdocs build --quiet

# docs/ as a site, in output/site. Its links are checked by `make check`.
site: setup
	$(BIN)/mkdocs build --quiet

# Without TRL and verl (no network) the others still run.
bench: setup
	-@$(MAKE) --no-print-directory .bench
	$(BIN)/python -m benchmarks $(ARGS)

# On a machine with a GPU, in ten minutes: ARGS="--model DIR --json gpu.json" (docs/hardware.md).
gpu-check: setup
	$(BIN)/python -m benchmarks.gpu_check $(ARGS)

# All of benchmarks/experiments, those of hours, too; runs that are finished are not run again.
experiments: setup
	$(BIN)/python -m benchmarks --experiments $(ARGS)

tables: setup
	$(BIN)/python -m benchmarks.tables

# TRL and verl, which four benchmarks compare with: a directory beside the virtual environment, on nobody's path but theirs.
.bench: .bench/.installed
.bench/.installed: requirements/bench.lock | setup
	rm -rf .bench
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target .bench -r requirements/bench.lock
	@touch $@

# A private Docker Engine on this machine, as root, where none is running (Debian).
engine:
	docker/engine.sh start
	docker/engine.sh image

image:
	docker/engine.sh image

# Those of a cluster: the sandbox's, and the trainer's with the packages of LOCK.
images: image
	LOCK=$(LOCK) docker/engine.sh trainer

setup:
	@requirements/install.sh $(VENV) $(LOCK)
	@docker/engine.sh setup
