# Two commands: `make run` trains the embedded models against each other, `make test` runs the tests.
# Each sets up what it needs and is quick once that is done.
#   make run ARGS="--config debug"     arguments of driver.py
#   make test ARGS="-k sandbox"        arguments of pytest
#   make bench ARGS="--quick learner"  arguments of python -m benchmarks
#   TORCH_INDEX="--index-url URL"      where pip finds a CPU-only torch, if you have such an index
#   LOCK=gpu                           CUDA builds of torch and vLLM instead

PYTHON ?= python3.11
VENV ?= .venv
LOCK ?= cpu
TORCH_INDEX ?=
ARGS ?=
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(LOCK)

.PHONY: run test test-slow check bench tables engine image setup .bench

run: setup
	$(BIN)/python driver.py $(ARGS)

test: setup
	$(BIN)/python -m pytest $(ARGS)

test-slow: setup
	$(BIN)/python -m pytest -m slow $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright
	$(BIN)/python -m benchmarks.tables --check

# Without TRL (no network) the others still run.
bench: setup
	-@$(MAKE) --no-print-directory .bench
	$(BIN)/python -m benchmarks $(ARGS)

tables: setup
	$(BIN)/python -m benchmarks.tables

# TRL, which two benchmarks compare with: a directory beside the virtual environment, on nobody's path but theirs.
.bench: .bench/.installed
.bench/.installed: $(STAMP) requirements/bench.lock
	rm -rf .bench
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target .bench -r requirements/bench.lock
	@touch $@

# A private Docker Engine on this machine, as root, where none is running (Debian).
engine:
	docker/engine.sh start
	docker/engine.sh image

image:
	docker/engine.sh image

setup: $(STAMP)
	@if timeout 10 docker version >/dev/null 2>&1; then docker/engine.sh image; \
	else echo "no Docker Engine answers: programs will be judged in bubblewrap namespaces (make engine starts one)"; fi

$(STAMP): requirements/$(LOCK).lock requirements/dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
		{ echo "error: Sparring needs Python 3.11; $(PYTHON) is another one: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH_INDEX) torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r requirements/$(LOCK).lock -r requirements/dev.lock
	@touch $@
