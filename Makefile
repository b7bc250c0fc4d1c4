# Each target makes its own virtual environment where there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help run test check quick figures clean

help: ## say what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: $(VENV)/.run ## set up, and run the paper's network, a process per peer
	$(BIN)/thanos-peer run topologies/paper-l1.toml --free-ports --reference

test: quick ## set up, and run every check and test
	$(BIN)/pytest -n auto

check: test ## the same

quick: $(VENV)/.dev ## format, lint, types and import direction only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

figures: $(VENV)/.dev ## the paper's two figures, into runs/paper
	$(BIN)/thanos-peer reproduce

clean: ## remove the virtual environment and all caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'thanos-peer needs Python 3.11 or newer: make PYTHON=python3.12 ...'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.venv pyproject.toml
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@
