# Every target creates .venv if it is missing or outdated.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
# sed_eval and sed_scores_eval, which need an old pandas: for tests and benchmarks only.
ORACLES := .venv-oracles
# Another network and another runtime with many dependencies: for benchmarks only.
PEERS  := .venv-peers
# MkDocs and its plugins: for the documentation site only.
SITE   := .venv-site

# The benchmarks that need them, which are among all, and may be among those that ONLY names.
COMPARED := detection runtimes scoring psds
OTHERS := $(if $(filter $(COMPARED),$(or $(ONLY),$(COMPARED))),$(ORACLES)/ready $(PEERS)/ready)

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench faults docs site format clean

help: ## Show the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(READY) $(ORACLES)/ready ## Create .venv and .venv-oracles

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

$(SITE)/ready: docs/site/requirements.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --requirement docs/site/requirements.txt
	@touch $@

demo: $(READY) ## Train and detect on synthetic scenes; plots go to demo/
	$(BIN)/earmark demo --out demo

test: $(READY) $(ORACLES)/ready ## Run all tests, doctests and documents; fails below the coverage floor
	$(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report=

check: $(READY) ## Lint, types and architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

bench: $(READY) $(OTHERS) ## Run the benchmarks; writes docs/speed.md, metrics.md and results.md
	$(BIN)/python -m benchmarks $(ONLY)

faults: $(READY) ## Bad input for every reader, mutants of the code; continues where it was stopped
	$(BIN)/python -m faults $(ONLY)

docs: $(READY) ## Rebuild the tables and figures of docs/
	$(BIN)/python -m docs.build $(ONLY)

site: $(SITE)/ready ## Build the documentation site into site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build
	@echo "site/index.html opens in any browser, without a server"

format: $(READY) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove everything that the targets created
	rm -rf $(VENV) $(ORACLES) $(PEERS) $(SITE) demo site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
