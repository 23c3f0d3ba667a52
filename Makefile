# Every target sets up .venv by itself and is quick when it is already there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
# The field's own scorers, which need an old pandas: for tests and benchmarks only.
ORACLES := .venv-oracles
# A network and a runtime of the field, each with much of its own: for benchmarks only.
PEERS  := .venv-peers

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench docs format clean

help: ## Show the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(READY) $(ORACLES)/ready ## Make .venv and install what we test with

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "earmark needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": run make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(ORACLES)/ready: oracles/requirements.txt
	$(PYTHON) -m venv $(ORACLES)
	$(ORACLES)/bin/python -m pip install --quiet --disable-pip-version-check --requirement oracles/requirements.txt
	@touch $@

$(PEERS)/ready: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/peers/requirements.txt
	@touch $@

demo: $(READY) ## Run the main job on sounds made on the spot; pictures go to demo/
	$(BIN)/earmark demo --out demo

test: $(READY) $(ORACLES)/ready ## Run every test, doctest and document
	$(BIN)/python -m pytest -n auto --dist loadfile

check: $(READY) ## Lint, types and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_house.py

bench: $(READY) $(ORACLES)/ready $(PEERS)/ready ## Measure side by side; writes docs/speed.md and docs/metrics.md
	$(BIN)/python -m benchmarks $(ONLY)

docs: $(READY) ## Make the tables and figures of docs/ anew
	$(BIN)/python -m docs.build

format: $(READY) ## Let ruff tidy the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what the targets made
	rm -rf $(VENV) $(ORACLES) $(PEERS) demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
