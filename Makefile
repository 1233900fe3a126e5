# SPDX-License-Identifier: MIT
# The commands of the project; `make help` lists them. CMake and ninja do the building, so a command
# repeated does nothing twice. Installed packages, .venv and the configured build are stamped.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := all

PYTHON ?= python3
JOBS ?= $(shell nproc)
ONLY ?=
ARGS ?=
SAN ?=
NO_INSTALL ?=

sanitizer := $(if $(filter 1,$(SAN)),address,$(SAN))
build := build$(if $(sanitizer),-$(sanitizer))
venv := .venv
run := PYTHONPATH=$(CURDIR)/$(build)/python $(venv)/bin/python

.PHONY: all
all: ## install packages, build, and make `import cermet` work in .venv
all: build $(if $(sanitizer),,$(venv)/.linked)

.PHONY: build
build: $(build)/build.ninja
	@ninja -C $(build) -j$(JOBS)

.PHONY: packages
packages:
	@tools/install_packages.sh $(if $(NO_INSTALL),--list)

$(venv)/.installed: requirements-test.txt | packages
	@[ -x $(venv)/bin/python ] || $(PYTHON) -m venv $(venv)
	@echo "installing requirements-test.txt into $(venv)"
	@$(venv)/bin/python -m pip install -q --disable-pip-version-check -r requirements-test.txt
	@touch $@

# The package is imported from the build folder, so a change is seen without installing.
$(venv)/.linked: $(venv)/.installed
	@$(venv)/bin/python -c 'import pathlib, sysconfig; \
	  pathlib.Path(sysconfig.get_path("purelib"), "cermet.pth").write_text("$(CURDIR)/build/python\n")'
	@touch $@

$(build)/build.ninja: $(venv)/.installed | packages
	@cmake -S . -B $(build) -G Ninja -DCMAKE_BUILD_TYPE=Release -DCERMET_SANITIZE=$(sanitizer) \
	  -DPython_EXECUTABLE=$(CURDIR)/$(venv)/bin/python
	@touch $@

.PHONY: demo
demo: ## train the small text model and sample from it (ARGS="--seconds 60")
demo: all
	@$(run) examples/text_model/train.py $(ARGS)

.PHONY: test
test: ## build, C++ tests, Python tests, checks of the tree (ONLY=pattern, SAN=1, SAN=thread)
test: all
	@$(run) tools/run_tests.py --build $(build) --jobs $(JOBS) --only "$(ONLY)" -- $(ARGS)

.PHONY: test-peers
test-peers: ## tests that exchange arrays with torch and jax (installs them into .venv-peers)
test-peers: all peers
	@PYTHONPATH=$(CURDIR)/$(build)/python .venv-peers/bin/python -m pytest tests/peers $(ARGS)

.PHONY: peers
peers:
	@PYTHON=$(PYTHON) tools/install_peers.sh

.PHONY: bench
bench: ## ours, each peer and the machine's ceilings in one table (ONLY=pattern)
bench: all peers
	@$(run) bench/run.py --ceiling $(build)/bench_ceiling --only "$(ONLY)" $(ARGS)

.PHONY: fuzz
fuzz: ## random kernels and graphs, new seeds, every float; long (ONLY=kernels ARGS="--seconds 60")
fuzz: all
	@ninja -C $(build) -j$(JOBS) fuzzers
	@shopt -s nullglob; for fuzzer in $(build)/fuzz_*$(ONLY)*; do "$$fuzzer" $(ARGS); done
	@export TEST_SEED=$${TEST_SEED:-new}; \
	  $(foreach file,$(filter-out %/conftest.py,$(wildcard tests/fuzz/*$(ONLY)*.py)), \
	    $(run) -m pytest -q -o faulthandler_timeout=0 $(file) $(ARGS);) \
	  $(if $(ONLY),,$(run) -m pytest -q tests/python/test_{ops_table,index,print}.py)

cxx := $(shell git ls-files -co --exclude-standard '*.cpp' '*.h' 2>/dev/null)

.PHONY: format
format: ## rewrite every C++ and Python file in the project's style
format: $(venv)/.installed
	@echo $(cxx) | xargs -r clang-format-19 -i
	@$(venv)/bin/ruff check -q --fix-only . && $(venv)/bin/ruff format -q .

.PHONY: lint
lint: ## formatting, headers alone, clang-tidy, ruff, checks of the tree
lint: all
	@echo $(cxx) | xargs -r clang-format-19 --dry-run -Werror
	@ninja -C $(build) -j$(JOBS) headers
	@$(venv)/bin/ruff check -q . && $(venv)/bin/ruff format -q --check .
	@$(venv)/bin/python tools/check.py
	@run-clang-tidy-19 -quiet -j $(JOBS) -p $(build) "$(CURDIR)/(src|python/src)/.*$(ONLY)" 2>/dev/null

.PHONY: wheel
wheel: ## build dist/cermet-*.whl
wheel: $(venv)/.installed
	@$(venv)/bin/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation \
	  -w dist . && ls -l dist/*.whl

.PHONY: clean
clean: ## remove what was built; .venv and .venv-peers stay
	@rm -rf build build-* dist

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+: ##' Makefile | sed -E 's/^([a-z-]+): ## /\1\t/' | expand -t 14
	@echo "SAN=1 | SAN=thread   JOBS=n   ONLY=pattern   ARGS=…   NO_INSTALL=1 (names missing packages)"
