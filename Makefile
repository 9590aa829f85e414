# Two commands do everything on a fresh Debian or Ubuntu machine, packages included:
#   make lab    five machines, a Dask cluster in them, a first measured result
#   make test   every check there is
# `make` alone lists the rest.

SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

# command it provides -> package; what the embedded lab needs, then what only tests need
TOOLS := qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils mmdebstrap:mmdebstrap mke2fs:e2fsprogs \
	ip:iproute2 xorriso:xorriso nc:netcat-openbsd ssh:openssh-client \
	newuidmap:uidmap unshare:util-linux lxc-start:lxc zstd:zstd
TEST_TOOLS := busybox:busybox tcpdump:tcpdump tshark:tshark chromium:chromium ping:iputils-ping ethtool:ethtool iperf3:iperf3

# Editors complete and check an experiment's file with this schema, which follows from the model.
SCHEMA := lab/dasklab/experiments/schema.json

.PHONY: help
help: ## list what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

# Debian's packages and Python's come side by side.
.PHONY: lab
lab: ## build the lab on this machine and measure a baseline; GUESTS=container for containers
	@$(MAKE) --no-print-directory -j2 packages .venv/ready
	@$(BIN)/dasklab up $(if $(GUESTS),--guests $(GUESTS))

.PHONY: destroy
destroy: .venv/ready ## remove the lab again; results and caches are kept
	@$(BIN)/dasklab destroy --yes

# Tests start hundreds of Pythons: what these import is compiled once, also where the environment says never.
test quick unit: export PYTHONDONTWRITEBYTECODE :=
SIDE_BY_SIDE := --dist loadfile --no-loadscope-reorder -n

# Files side by side, as each has an endpoint of its own, the long ones first: more than there are cores where each waits
# now and then. Two labs of five guests are as much as two cores bear: with other tests beside them all take longer.
.PHONY: test
test: ## every check: lint, types, unit, contract, end-to-end
	@$(MAKE) --no-print-directory -j2 test-packages .venv/ready
	@$(MAKE) --no-print-directory lint
	$(BIN)/pytest $(SIDE_BY_SIDE) 4 tests/wire_e2e tests/contract tests/unit
	$(BIN)/pytest $(SIDE_BY_SIDE) 2 $(addprefix tests/e2e/test_,lab.py wheel.py roles_alone.py containers.py twin.py readme.py image.py pythons.py collection.py strategy.py)

# Folders whose tests import little and start no cluster.
QUICK := $(addprefix tests/unit/,guest roles docs minipve dasklab/model dasklab/machines)
.PHONY: quick
quick: .venv/ready ## the tests that take seconds
	$(BIN)/pytest $(SIDE_BY_SIDE) 2 $(QUICK)

.PHONY: unit
unit: .venv/ready ## all unit tests, those of `quick` too
	$(BIN)/pytest $(SIDE_BY_SIDE) 3 tests/unit

.PHONY: lint
lint: .venv/ready $(SCHEMA) ## ruff, contracts between packages, plain language, size, mypy, ansible-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tests/plain_language.py
	$(BIN)/python tests/house_size.py
	@$(MAKE) --no-print-directory -j2 --output-sync=target types ansible-rules

.PHONY: schema
schema: $(SCHEMA) ## write the JSON Schema of an experiment's file, if the model has changed
$(SCHEMA): $(wildcard lab/dasklab/model/*/*.py) | .venv/ready
	$(BIN)/python -m dasklab.model.experiments.experiment >$@.new
	@mv $@.new $@

.PHONY: collection
collection: .venv/ready ## build the Ansible collection dasklab.lab into build/
	$(BIN)/python collection/build.py

.PHONY: docs
docs: .venv/ready ## the documentation in docs/_build/html; a warning, such as a link to nowhere, is an error
	$(BIN)/sphinx-build -q -W --keep-going -b html -c docs . docs/_build/html

.PHONY: types ansible-rules
types:
	$(BIN)/mypy
ansible-rules:
	$(BIN)/ansible-lint --offline -q

.PHONY: clean
clean: ## remove what was made in this folder (not results)
	rm -rf .venv build dist docs/_build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .ansible

.PHONY: python packages test-packages
python:
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { $(call install,python3-venv); }
packages: python
	@$(call install-missing,$(TOOLS))
test-packages: packages
	@$(call install-missing,$(TEST_TOOLS))

# pip installs uv, and uv the rest: nothing whose hash is not in the lock file. Only modules that are imported often are
# compiled: Ansible's collections are half of all, and packages bring their tests.
LOCK := requirements.lock
UV := $(BIN)/uv --system-certs pip
.venv/ready: pyproject.toml $(LOCK) | python
	$(PYTHON) -m venv .venv
	sed -n '/^uv==/,/[^\\]$$/p' $(LOCK) | $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r /dev/stdin
	$(UV) install --quiet --python $(BIN)/python --require-hashes -r $(LOCK)
	$(UV) install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q -j 0 -x '/(ansible_collections|tests)/' .venv/lib >/dev/null || true # some templates are no Python
	@touch $@

.PHONY: lock
lock: ## add what pyproject.toml asks for to the lock file; LOCK_OPTIONS=--upgrade for the newest versions of all
	$(UV) compile --quiet --no-python-downloads --universal --python-version 3.10 --extra dev --generate-hashes \
		--no-annotate --custom-compile-command 'make lock' $(LOCK_OPTIONS) pyproject.toml -o $(LOCK)

# Install the packages of the commands that are missing.
define install-missing
	set -e; PATH="$$PATH:/usr/sbin:/sbin"; missing=""; \
	for pair in $(1); do command -v "$${pair%%:*}" >/dev/null || missing="$$missing $${pair#*:}"; done; \
	if [ -n "$$missing" ]; then $(call install,$$missing); fi
endef

# Install packages; say so where that takes rights one has not.
define install
	set -e; echo "installing:" $(1); \
	if [ "$$(id -u)" = 0 ]; then as=""; elif command -v sudo >/dev/null; then as=sudo; \
	else echo "missing packages, and no sudo; as root: apt-get install" $(1) >&2; exit 1; fi; \
	$$as apt-get update -qq; \
	DEBIAN_FRONTEND=noninteractive $$as apt-get install -y -qq --no-install-recommends $(1) >/dev/null
endef
