# Everything runs from .venv, which is made from requirements-cpu.lock, again only when the lock or pyproject.toml changes.
PYTHON ?= python3.11
CONFIG ?= configs/laptop.yaml
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps

.DEFAULT_GOAL := help
.PHONY: help install serve test check lint clean

help: ## show this text
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 26

install: $(READY) ## set up the environment (the others do it when needed)

$(READY): requirements-cpu.lock pyproject.toml
	@echo "setting up $(VENV) from requirements-cpu.lock: some minutes, once"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -r requirements-cpu.lock 2>$(VENV)/pip.log || { grep -v '^WARNING' $(VENV)/pip.log >&2; \
		echo "If torch was not found: it comes from PyTorch's CPU wheel index;" \
		     "name that in PIP_EXTRA_INDEX_URL and run make again." >&2; exit 1; }
	@$(PIP) --no-build-isolation -e . 2>>$(VENV)/pip.log || { cat $(VENV)/pip.log >&2; exit 1; }
	@touch $(READY)

serve: $(READY) ## serve the demo model here: 1 prefill + 1 decode worker on CPU (CONFIG=FILE for another)
	@$(BIN)/baton serve $(CONFIG)

test: $(READY) ## run all the tests, those with real engines and Ray included
	@$(MAKE) --no-print-directory --jobs=2 --keep-going --output-sync=target \
		test-ray-engines test-engines test-units test-ray

# The groups of tests, two at a time: each is a process that keeps its own list of what failed. Ray reads its
# environment once in a process, and Ray's engines lease the machine's cores, as the tests of those leases do.
.PHONY: test-units test-engines test-ray test-ray-engines test-alone
test-units: TESTS := tests -m "not ray and not engine and not cores and not alone"
test-engines: TESTS := tests/engine tests/contracts -m engine
test-ray: TESTS := tests/ray -m "not engine and not alone"
test-ray-engines: TESTS := tests/unit/workers/test_cores.py tests/ray -m "(engine or cores) and not alone"
test-alone: TESTS := tests/ray tests/faults -m alone

test-alone: ## the tests that take minutes and need the machine to themselves: `ray up` to `ray down`, a wedged real engine, nodes that fail and come
test-units test-engines test-ray test-ray-engines test-alone: $(READY)
	@mkdir -p .pytest_cache/$@
	@$(BIN)/python -m pytest -o cache_dir=.pytest_cache/$@ $(TESTS) $(ARGS); status=$$?; \
		echo $$status >.pytest_cache/$@/status; exit $$status

check: lint ## lint, types, import contracts, fast tests, the shape of the code
	@$(BIN)/python -m pytest -q -m "not ray and not engine and not slow and not alone"
	@$(BIN)/python -m tests.architecture.shape

lint: $(READY) ## lint, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.peers/dynamo/.ready: tests/benchmarks/dynamo.lock
.peers/transfer/.ready: tests/benchmarks/transfer.lock
.peers/conformance/.ready: tests/conformance/clients.lock
.peers/fuzz/.ready: tests/fuzz/schemathesis.lock

# Each rival and each set of clients lives in an environment of its own; the pins are the prerequisite.
.peers/%/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

.PHONY: bench-peers bench-gateway bench-overload bench-connector bench-copies bench-hot-prefix bench-prediction bench-fidelity bench-pd bench-router bench-routing bench-lending bench-pools bench-plan bench-simulator bench-reuse bench-eviction bench-store stress-store fuzz soak chaos chaos-real chaos-no-prefill conformance

bench-peers: .peers/dynamo/.ready .peers/transfer/.ready .peers/conformance/.ready ## install the rivals and clients that the benchmarks compare with

bench-gateway: $(READY) ## gateway against vLLM's own app, a Serve stream and Dynamo, over one fake engine (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.gateway $(ARGS)

bench-overload: $(READY) ## three times what a fleet of simulated engines can take, over HTTP: who is refused, what the others wait (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.overload $(ARGS)

bench-connector: $(READY) ## decode speed of a real engine with the connector attached and idle against without
	$(BIN)/python -m tests.benchmarks.connector $(ARGS)

bench-copies: $(READY) ## copies between an engine's KV memory and the store's arena, beside memcpy (ARGS=--rounds 9)
	$(BIN)/python -m tests.benchmarks.device_copies $(ARGS)

bench-hot-prefix: $(READY) ## a hot shared prefix live on simulated engines, ours against least-loaded (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.hot_prefix $(ARGS)

bench-prediction: $(READY) ## how far predicted times to first token are off, on real engines (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.prediction $(ARGS)

bench-fidelity: $(READY) ## the simulator against two real engines on the same requests, with their measured profile (ARGS="--seconds 30")
	$(BIN)/python -m tests.benchmarks.fidelity $(ARGS)

bench-pd: $(READY) ## two real engines as prefill and decode against two that do both, on mixed traffic (ARGS="--rounds 1")
	$(BIN)/python -m tests.benchmarks.pd $(ARGS)

bench-router: $(READY) ## what a routing decision and the block index cost, beside Dynamo's (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.router $(ARGS)

bench-routing: $(READY) ## where requests are placed: ours, plain policies and Dynamo's router on a real trace, in virtual time (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.routing $(ARGS)

bench-lending: $(READY) ## lending replicas between the roles against every fixed ratio, in virtual time (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.lending $(ARGS)

bench-pools: $(READY) ## lending live: eight simulated workers on real Ray as traffic turns, against fixed ratios (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.pools $(ARGS)

bench-plan: $(READY) ## planned ratios against the best of all, on recorded and described workloads, 8 and 32 replicas (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.plan $(ARGS)

bench-simulator: $(READY) ## how fast clusters are simulated, beside Dynamo's replay, and a thousand replicas (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.simulator $(ARGS)

bench-reuse: $(READY) ## how much of a real trace is not computed again with host memory, on one node and on eight (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.reuse $(ARGS)

bench-eviction: $(READY) ## which blocks a full store should give up: policies and Belady's optimum on both traces (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.eviction $(ARGS)

bench-store: $(READY) ## moving blocks between two stores over TCP, beside raw sockets, NIXL and Mooncake (ARGS=--quick)
	$(BIN)/python -m tests.benchmarks.store $(ARGS)
	$(BIN)/python -m tests.benchmarks.exposed $(ARGS)

stress-store: $(READY) ## ten million operations of three engines on the store's books and arena, all bytes checked (ARGS=--disk)
	$(BIN)/python -m tests.benchmarks.stress_store $(ARGS)

SEED ?= 1
fuzz: $(READY) .peers/fuzz/.ready ## 10,000 malformed requests, schemathesis on the OpenAPI document, 10,000 malformed frames (SEED=2)
	$(BIN)/python -m tests.fuzz.bodies --seed $(SEED)
	$(BIN)/python -m tests.fuzz.openapi --seed $(SEED)
	$(BIN)/python -m tests.fuzz.frames --seed $(SEED)

soak: $(READY) ## half a million requests at simulated engines: memory and file descriptors stay flat (ARGS="--minutes 10")
	$(BIN)/python -m tests.chaos.soak $(ARGS)

chaos: $(READY) ## ten minutes of killed workers, stores, connections and controllers under load; every token checked (ARGS="--minutes 1")
	$(BIN)/python -m tests.chaos.run $(ARGS)

chaos-real: $(READY) ## each part of a service with real engines killed, stopped or cut off under load, one by one (ARGS="--only 1P+2D")
	$(BIN)/python -m tests.chaos.real_engines $(ARGS)

chaos-no-prefill: $(READY) ## the only prefill worker killed and kept down, beside a fleet without one (ARGS="--rounds 1")
	$(BIN)/python -m tests.chaos.no_prefill $(ARGS)

URL ?= http://127.0.0.1:8000
conformance: $(READY) .peers/conformance/.ready ## run real clients and llm-comply against a running server (URL=http://127.0.0.1:8000)
	.peers/conformance/bin/python -m tests.conformance.comply --base-url $(URL)
	$(BIN)/python -m tests.conformance.bench_serve --base-url $(URL)
	.peers/conformance/bin/python -m tests.conformance.clients --base-url $(URL)

clean: ## remove the environment
	rm -rf $(VENV)
