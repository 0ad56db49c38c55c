# Everything runs from .venv, which `make` builds from requirements-cpu.lock when the lock or pyproject.toml changes.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help install serve test check clean

help: ## show this text
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

install: $(READY) ## set up the environment (done by the others when needed)

$(READY): requirements-cpu.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps -r requirements-cpu.lock
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

serve: $(READY) ## serve the demo model on this machine: 1 prefill + 1 decode worker on CPU
	$(BIN)/baton serve configs/laptop.yaml

test: $(READY) ## run all the tests
	$(BIN)/python -m pytest

check: $(READY) ## lint, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean: ## remove the environment
	rm -rf $(VENV)
