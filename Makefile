# Every target does its own set-up: a machine with python3 (3.11+) and make is enough.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null || echo .cache/uv/bin/uv)
PART ?= kernel
WORKERS ?= 2
STAMP := $(VENV)/.installed

.PHONY: setup check test demo bench soak lock format clean help

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## create .venv with the lakebed command, its hot rooms compiled where there is a C compiler (PLAIN=1: not)
	@$(BIN)/python tools/compile_rooms.py $(if $(PLAIN),--plain)

.cache/uv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Lakebed needs Python 3.11 or newer: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv .cache/uv
	.cache/uv/bin/python -m pip install --quiet --require-hashes -r requirements/uv.txt

$(STAMP): requirements/dev.txt pyproject.toml | $(filter .cache/%,$(UV))
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	$(UV) pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src
	@touch $@

check: setup ## format, lint, types, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_architecture.py

test: setup ## everything; installs the servers it needs. Clients have sessions that end, so they get the machine for themselves
	$(BIN)/pytest tests/clients
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore tests/clients

demo: setup ## the main job, end to end, in a scratch folder
	$(BIN)/lakebed demo

bench: setup ## PART=kernel|stream|groups|tables [QUICK=1]: ratios against peers and floors
	$(BIN)/python -m bench $(PART) $(if $(QUICK),--quick)

soak: setup ## long runs: more kills, more races, more seeds
	LAKEBED_SOAK=1 $(BIN)/pytest -m "slow or services" --timeout 3600

format: setup ## rewrite files in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(filter .cache/%,$(UV)) ## compile requirements/*.txt anew
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --all-extras pyproject.toml -o requirements/base.txt
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --all-extras --group dev pyproject.toml requirements/build.in -o requirements/dev.txt
	echo uv | $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header - -o requirements/uv.txt

clean: ## forget environments and caches
	rm -rf $(VENV) .cache bench/results/*.tmp
	find src -name '*.so' -delete
