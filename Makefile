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

.peers/dynamo/.ready: tests/benchmarks/dynamo.lock
.peers/conformance/.ready: tests/conformance/clients.lock

# Each rival and each set of clients lives in an environment of its own; the pins are the prerequisite.
.peers/%/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

.PHONY: bench-peers bench-gateway bench-connector conformance

bench-peers: .peers/dynamo/.ready .peers/conformance/.ready ## install the rivals and clients that the benchmarks compare with

bench-gateway: $(READY) ## gateway against vLLM's own app, a Serve stream and Dynamo, over one fake engine (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.gateway $(ARGS)

bench-connector: $(READY) ## decode speed of a real engine with the connector attached and idle against without
	$(BIN)/python -m tests.benchmarks.connector $(ARGS)

URL ?= http://127.0.0.1:8000
conformance: $(READY) .peers/conformance/.ready ## run real clients and llm-comply against a running server (URL=http://127.0.0.1:8000)
	.peers/conformance/bin/python -m tests.conformance.clients --base-url $(URL)
	.peers/conformance/bin/python -m tests.conformance.comply --base-url $(URL)
	$(BIN)/python -m tests.conformance.bench_serve --base-url $(URL)

clean: ## remove the environment
	rm -rf $(VENV)
