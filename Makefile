# `make help` lists the targets. Needed by hand: git, make, Python 3.11 or newer.
PYTHON ?= python3
TORCH ?= torch==2.13.0
# Where torch comes from, as a pip index: the CPU or a CUDA index of pytorch.org. Empty: pip's own.
TORCH_INDEX ?=
# Runs at a time (default: one a core, or one a GPU).
JOBS ?=
PROFILE ?=
FORCE ?=

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The environment is rebuilt when the lock, the packaging or the folder it stands in changes.
STATE := $(shell { echo '$(CURDIR) $(PYTHON) $(TORCH) $(TORCH_INDEX)'; cat requirements.lock pyproject.toml; } | cksum | cut -d' ' -f1)
READY := .venv/.ready-$(STATE)
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export DVC_NO_ANALYTICS := 1
export SMALL_INIT_JOBS := $(or $(JOBS),$(SMALL_INIT_JOBS))

# A worker a core. A file's tests share what is made for them; tests/conftest.py says which come first.
PYTEST = python -m pytest --numprocesses logical --dist loadfile --no-loadscope-reorder

REPRODUCE = small-init reproduce $(if $(FORCE),--force)

.NOTPARALLEL:
.PHONY: help setup reproduce audit test test-fast smoke tables figures objects claims report tensorboard profile prune bench gpu-check lock clean always

help: ## list the targets
	@awk -F':.*## ' '/^[a-z].*:.*## / {sub(/%/, "N", $$1); printf "  %-22s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## the environment alone, in .venv

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one with PYTHON=.")'
	rm -rf .venv
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH)' $(if $(TORCH_INDEX),--index-url '$(TORCH_INDEX)')
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

reproduce: $(READY) ## every stage that is not up to date, then all tables and figures
	$(REPRODUCE)

test: $(READY) ## format, lint, types and tests
	ruff format --check .
	ruff check .
	mypy
	$(PYTEST)

test-fast: $(READY) ## lint, and the tests that take no more than seconds: a developer's loop
	ruff check .
	$(PYTEST) -m 'not slow'

smoke: $(READY) ## the whole pipeline from nothing, tiny, in a scratch copy (build/smoke)
	tools/smoke.sh

figure-%: $(READY) always ## one paper object, e.g. figure-4
	$(REPRODUCE) $@

table-%: $(READY) always ## likewise, e.g. table-1
	$(REPRODUCE) $@

tables figures objects: $(READY) ## every table, figure or both, from the records in git; FORCE=1 redraws
	$(REPRODUCE) $@

audit: $(READY) ## train N published runs anew (3) and compare, file by file; SEED=, ARM=
	small-init audit $(if $(N),--runs $(N)) $(if $(SEED),--seed $(SEED)) $(if $(ARM),--arm $(ARM)) $(if $(FORCE),--fresh)

claims: $(READY) ## the verdicts on the paper's claims
	$(REPRODUCE) claims
	small-init claims

report: $(READY) ## results/<profile>/report.pdf and .html
	$(REPRODUCE) report

tensorboard: $(READY) ## the runs in TensorBoard, the published ones included
	small-init tensorboard

profile: $(READY) ## which scale the pipeline describes: PROFILE=smoke, cpu, gpu, paper
	@test -n '$(PROFILE)' || { echo 'Name a profile: make profile PROFILE=cpu'; exit 2; }
	small-init plan --profile $(PROFILE)

prune: $(READY) ## remove records that the plan does not ask for
	small-init prune

# Peers the project does not need, apart from the environment; without them the benchmark says so.
PEERS := build/peers
$(PEERS): benchmarks/requirements.txt $(READY)
	-python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --require-hashes \
		--target $@ -r $< && touch $@

bench gpu-check: export PYTHONPATH := $(CURDIR)/$(PEERS)

bench: $(READY) $(PEERS) ## speed and memory of training against transformers and litgpt; what probes cost
	python benchmarks/train_step.py --out benchmarks/train_step.json
	python benchmarks/probes.py --out benchmarks/probes.json

gpu-check: $(READY) $(PEERS) ## on a machine with a GPU: its tests, MFU, memory, a short pair (8 minutes)
	python benchmarks/gpu.py --out benchmarks/gpu.json

lock: ## resolve pyproject.toml into requirements.lock (needs uv)
	tools/lock.sh

clean: ## remove scratch state: checkpoints, event files, the smoke copy
	rm -rf scratch build
