# Each target makes its own virtual environment where there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
IMAGE := thanos-peer:$(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' thanos_peer/__init__.py)

# Where `make run` leaves its results.
RUN := runs/paper-l1-$(shell date +%Y%m%d-%H%M%S)

.DEFAULT_GOAL := help
.PHONY: help run test check quick figures wheels image clean

help: ## say what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: $(VENV)/.run ## set up, and run the paper's network, a process per peer: THANOS, then the exact method
	$(BIN)/thanos-peer run topologies/paper-l1.toml --free-ports --reference --out $(RUN)-thanos
	@echo 'And now the exact answer of the same network:'
	$(BIN)/thanos-peer run topologies/paper-l1.toml --method auto --free-ports --reference \
		--out $(RUN)-exact --beside $(RUN)-thanos

test: quick ## set up, and run every check and test
	@failed=0; \
	$(BIN)/pytest -n auto --dist worksteal -m 'not docker' || failed=1; \
	$(BIN)/pytest -m docker || failed=1; \
	exit $$failed

check: test ## the same

quick: $(VENV)/.dev ## format, lint, types and import direction only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

figures: $(VENV)/.dev ## the paper's two figures, into runs/paper
	$(BIN)/thanos-peer reproduce

# What the image's Python needs, whatever Python and system this is.
ARCHITECTURE := $(subst arm64,aarch64,$(shell uname -m))
FOR_IMAGE := --python-version 3.11 --implementation cp --only-binary :all: \
	$(foreach glibc,2_34 2_28 2_27 2_24 2_17,--platform manylinux_$(glibc)_$(ARCHITECTURE)) \
	--platform manylinux2014_$(ARCHITECTURE)

# EXTRAS=parquet for an image that reads Parquet files.
EXTRAS ?=

# Here first: where no index is in reach, wheels that were copied to docker/wheels stay.
NEW_WHEELS := docker/wheels/.new

wheels: $(VENV)/.venv ## all that the image needs, into docker/wheels, to build it offline
	rm -rf $(NEW_WHEELS)
	{ $(BIN)/pip wheel --quiet --no-deps --wheel-dir $(NEW_WHEELS) . && \
		$(BIN)/pip download --quiet --dest $(NEW_WHEELS) $(FOR_IMAGE) \
			"$$(echo $(NEW_WHEELS)/thanos_peer-*.whl)$(if $(EXTRAS),[$(EXTRAS)])"; } || \
		{ rm -rf $(NEW_WHEELS); exit 1; }
	rm -f docker/wheels/*.whl
	mv $(NEW_WHEELS)/*.whl docker/wheels/
	rmdir $(NEW_WHEELS)

image: wheels ## the container image
	docker build --build-arg EXTRAS=$(EXTRAS) --file docker/Dockerfile --tag $(IMAGE) .

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
