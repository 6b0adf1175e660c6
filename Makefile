# Every target installs what it needs. `make` without a target lists the targets.

PYTHON ?= python3
VENV   ?= .venv
# Number of pytest-xdist workers; make test WORKERS=0 runs in one process
WORKERS ?= auto
# Further arguments: make test ARGS="-k ridge -x"
ARGS ?=

PY  := $(VENV)/bin/python
PIP := $(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt

# Pinned here and not in constraints.txt: the build (CPU, CUDA) depends on the machine.
TORCH := torch==2.13.0

ifeq ($(strip $(DOMAINWISE_DATA)),)
  SHARED_DATA := $(shell cd ../shared/data 2>/dev/null && pwd)
  ifneq ($(SHARED_DATA),)
    export DOMAINWISE_DATA := $(SHARED_DATA)
  endif
endif

# One BLAS thread per test worker: the workers already fill the cores, and sums do not depend on the thread count.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(ONE_THREAD) $(PY) -m pytest -n $(WORKERS) --maxprocesses=8 --dist=worksteal

.DEFAULT_GOAL := help
.PHONY: help demo reproduce docs test fuzz defects test-torch test-dask test-fast test-browser lint format release-check types bench constraints clean distclean

help: ## list all targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

# The demo writes to a new, empty folder, so that results of an older version are never reused.
DEMO := build/demo
demo: $(VENV)/.demo ## the life of a model at four hospitals, and a small case of the paper (a minute)
	@rm -rf $(DEMO)
	@$(ONE_THREAD) $(PY) examples/hospitals.py $(DEMO)

# make reproduce TABLE=synthetic ARGS=--quick runs a small version of one table; `$(PY) -m reproduction --help` lists all options
TABLE ?= all
reproduce: $(VENV)/.demo ## rerun the experiments in the paper (ARGS=--quick takes minutes)
	@$(ONE_THREAD) $(PY) -m reproduction $(TABLE) --jobs -1 $(ARGS)

# Warnings are errors. The documentation can be built and read offline.
docs: $(VENV)/.docs ## build the documentation, run the gallery and check links (minutes)
	@$(ONE_THREAD) $(PY) -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@$(ONE_THREAD) $(PY) -m pytest -q -m docs tests/docs $(ARGS)
	@echo "Open $(CURDIR)/docs/_build/html/index.html in a browser."

test: $(VENV)/.test ## run the tests and the docstring examples
	@$(PYTEST) $(ARGS)

# $(call suite,marker,stamp): run the tests with this marker; if there are none, print a message and succeed.
# The extra is installed by a recursive make, only if there are such tests.
define suite
	@if grep -rqw --include='*.py' 'mark\.$(1)' tests; then \
	  $(MAKE) --no-print-directory $(VENV)/.$(2) && $(PYTEST) -m $(1) $(ARGS); \
	else \
	  echo "No test has the marker '$(1)'; there is nothing to run."; \
	fi
endef

test-torch: ## run the tests with the marker torch (installs torch)
	$(call suite,torch,torch)

test-dask: ## run the tests with the marker dask (installs the dask extra)
	$(call suite,dask,dask)

test-fast: ## run the tests with the marker fast (installs the fast extra: Numba)
	$(call suite,fast,fast)

test-browser: ## run the tests with the marker browser (needs Chromium; axe-core is fetched with npm)
	@test -f build/node_modules/axe-core/axe.min.js || npm install --silent --no-save --prefix build axe-core@4 || true
	$(call suite,browser,test)

# make fuzz COUNT=300 FIRST=5000 makes the changes with the numbers 5000 to 5299
COUNT ?= 5000
FIRST ?= 0
fuzz: $(VENV)/.test ## read randomly changed files, and fit in threads and processes at the same time (minutes)
	@$(ONE_THREAD) $(PY) tests/hostile/fuzz_models.py --count $(COUNT) --first $(FIRST)
	@$(ONE_THREAD) $(PY) tests/hostile/fuzz_tables.py --count $(COUNT) --first $(FIRST)
	@$(ONE_THREAD) $(PY) tests/hostile/fuzz_folders.py --count $(COUNT) --first $(FIRST)
	@$(PY) tests/hostile/soak.py --count 200

# make defects WORDS="digest leak" runs only defects whose names contain one of the words
WORDS ?=
defects: $(VENV)/.test ## insert deliberate defects into copies of the sources, and check that the tests fail (minutes)
	@$(ONE_THREAD) $(PY) tests/defects/run.py -n $(WORKERS) $(WORDS)

lint: $(VENV)/.test ## check style and formatting
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

format: $(VENV)/.test ## format the code and apply automatic fixes
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

# make release-check KINDS=lowest tests only one of the two sets of versions
KINDS ?= pinned lowest
release-check: $(VENV)/.test ## build wheel and sdist, and test them in fresh environments
	@$(ONE_THREAD) $(PY) .ci/release_check.py $(KINDS)

types: $(VENV)/.test ## check types
	@$(PY) -m mypy

bench: $(VENV)/.fast ## measure the time and memory that exact DCM needs (minutes)
	@$(PY) benchmarks/speed.py exact

constraints: $(PY) ## update the versions in constraints.txt
	@$(PY) -m pip install -qq --disable-pip-version-check uv
	@echo "# Versions that the tests use. Written by 'make constraints'; torch is pinned in the Makefile." > constraints.tmp
	@$(PY) -m uv pip compile pyproject.toml --quiet --upgrade --universal --python-version 3.11 \
	  --fork-strategy fewest --no-header --no-annotate \
	  --extra boosting --extra cli --extra report --extra dask --extra data --extra fast --extra docs --extra test >> constraints.tmp
	@mv constraints.tmp constraints.txt

clean: ## remove caches and build outputs
	@rm -rf build dist docs/_build docs/benchmarks docs/gallery docs/reference
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis constraints.tmp
	@find src reproduction tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## also remove the virtual environment
	@rm -rf $(VENV)

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "domainwise needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1)."; \
	  echo "Choose another interpreter: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV) || { rm -f $(PY); exit 1; }

$(VENV)/.core: pyproject.toml constraints.txt | $(PY)
	@echo "installing domainwise"
	@$(PIP) -e .
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt | $(PY)
	@echo "installing domainwise with its command line and report"
	@$(PIP) -e ".[cli]"
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(PY)
	@echo "installing domainwise and its test tools"
	@$(PIP) -e ".[test]"
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(PY)
	@echo "installing domainwise and its documentation tools"
	@$(PIP) -e ".[docs]"
	@touch $@

$(VENV)/.dask: $(VENV)/.test
	@echo "installing the dask extra"
	@$(PIP) -e ".[test,dask]"
	@touch $@

$(VENV)/.fast: $(VENV)/.test
	@echo "installing the fast extra"
	@$(PIP) -e ".[test,fast]"
	@touch $@

$(VENV)/.torch: $(VENV)/.test
	@echo "installing $(TORCH)"
	@$(PIP) "$(TORCH)"
	@touch $@
