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

# The lowest versions that pyproject.toml accepts. Of torch, the lowest with a build for the CPU that can
# be installed here: older ones come with gigabytes of CUDA from most indexes. TORCH=2.4.0 for another.
LOWEST := .venv-lowest
TORCH  ?= 2.13.0
# Tests that use each dependency. Old releases warn of newer packages below them: warnings are no errors.
SUBSET := help settings event_formats scores model_file kept_files store onnx encoders plots web cluster
# pip-audit and its dependencies.
AUDIT  := .venv-audit
PIP    := -m pip --disable-pip-version-check
# Versions also of what builds the package; pip before 25.3 reads the first, later ones the second.
LOCKED := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt

# The benchmarks that need them, which are among all, and may be among those that ONLY names.
COMPARED := detection runtimes scoring psds
OTHERS := $(if $(filter $(COMPARED),$(or $(ONLY),$(COMPARED))),$(ORACLES)/ready $(PEERS)/ready)

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench faults mutants lowest lock audit docs site format clean

help: ## Show the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(READY) $(ORACLES)/ready ## Create .venv and .venv-oracles

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "earmark needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": run make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(LOCKED) $(BIN)/python $(PIP) install --quiet --editable '.[dev]'
	@touch $@

$(ORACLES)/ready: oracles/requirements.txt oracles/constraints.txt
	$(PYTHON) -m venv $(ORACLES)
	$(ORACLES)/bin/python $(PIP) install --quiet --requirement oracles/requirements.txt --constraint oracles/constraints.txt
	@touch $@

$(PEERS)/ready: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python $(PIP) install --quiet --requirement benchmarks/peers/requirements.txt
	@touch $@

$(SITE)/ready: docs/site/requirements.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python $(PIP) install --quiet --requirement docs/site/requirements.txt
	@touch $@

demo: $(READY) ## Train and detect on synthetic scenes; plots go to demo/
	$(BIN)/earmark demo --out demo

test: $(READY) $(ORACLES)/ready ## Run all tests, doctests and documents; COVERAGE=1 also checks the coverage
	$(BIN)/python -m pytest -n auto --dist worksteal $(if $(COVERAGE),--cov --cov-report=)

check: $(READY) ## Lint, types and architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

bench: $(READY) $(OTHERS) ## Run the benchmarks; writes docs/speed.md, metrics.md and results.md
	$(BIN)/python -m benchmarks $(ONLY)

faults: $(READY) ## Attack it: bad input, kills, full disks; continues where it was stopped
	$(BIN)/python -m faults $(ONLY)

mutants: $(READY) ## Change single lines of the code and list those that no test notices; an hour
	$(BIN)/python -m faults mutants

lowest: ## Install the lowest versions that we accept, and run the tests that use them
	rm -rf $(LOWEST)
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) -m docs.dependencies | sed 's/^torch==.*/torch==$(TORCH)/' > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python $(PIP) install --quiet --constraint $(LOWEST)/constraints.txt \
	  --editable '.[plot,parquet,tb,onnx,encoders,cluster,web]' pytest hypothesis httpx
	$(LOWEST)/bin/python -m pytest -q -W default $(SUBSET:%=tests/test_%.py)

lock: $(READY) $(ORACLES)/ready ## Write the versions of all packages in .venv and .venv-oracles to constraints.txt
	(grep '^#' constraints.txt; $(BIN)/python $(PIP) freeze --all --exclude pip --exclude-editable | sed 's/+cpu$$//') > $(VENV)/lock
	mv $(VENV)/lock constraints.txt
	(grep '^#' oracles/constraints.txt; $(ORACLES)/bin/python $(PIP) freeze --all --exclude pip) > $(ORACLES)/lock
	mv $(ORACLES)/lock oracles/constraints.txt
	@touch $(READY) $(ORACLES)/ready

audit: ## Look for known vulnerabilities of the locked versions; needs access to their database
	test -x $(AUDIT)/bin/pip-audit || ($(PYTHON) -m venv $(AUDIT) && $(AUDIT)/bin/python $(PIP) install --quiet pip-audit)
	$(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

docs: $(READY) ## Rebuild the tables and figures of docs/
	$(BIN)/python -m docs.build $(ONLY)

site: $(SITE)/ready ## Build the documentation site into site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build
	@echo "site/index.html opens in any browser, without a server"

format: $(READY) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove everything that the targets created
	rm -rf $(VENV) $(ORACLES) $(PEERS) $(SITE) $(LOWEST) $(AUDIT) demo site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
