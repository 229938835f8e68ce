# Everything here works on a fresh checkout: a target sets up what it needs. `make help` lists them.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
# Installs into the environment from outside, so that Debian's python3-venv is not needed.
PIP := $(PYTHON) -m pip --python $(BIN)/python --disable-pip-version-check --quiet
WORKERS ?= 2
SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help setup tools demo test test-versions test-long test-rest-proxy check format fuzz bench bench-spark bench-short bench-commits docs lock wheel clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 17

setup: $(VENV)/.package  ## build .venv, from which .venv/bin/headrace runs

$(VENV)/.environment:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it or set PYTHON=" >&2; exit 1; }
	@$(PYTHON) -m pip --version >/dev/null || { echo "pip is needed: apt-get install python3-pip" >&2; exit 1; }
	$(PYTHON) -m venv --without-pip $(VENV)
	@touch $@

$(VENV)/.dependencies: constraints.txt $(VENV)/.environment
	$(PIP) install --require-hashes --only-binary :all: --no-binary pyspark -r constraints.txt
	@touch $@

$(VENV)/.package: pyproject.toml $(VENV)/.dependencies
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## a broker, a stream, a Spark pipeline, four SIGKILLs, and nothing acknowledged lost
	$(BIN)/python -m scripts.demo

tools: setup  ## foreign programs the tests compare with: a JDK, Kafka's jars, kcat
	$(BIN)/python -m tests.support.tools

test: setup tools  ## the whole test suite
	$(BIN)/python -m scripts.test -n $(WORKERS) --dist loadgroup

# Found by name or in pyenv; each in an environment of its own, .venv-3.12 and so on.
VERSIONS ?= 3.11 3.12 3.13 3.14

test-versions: tools  ## the test suite on every Python from 3.11 on that is there
	@failed=; for v in $(VERSIONS); do \
		p=$$(ls -d $$HOME/.pyenv/versions/$$v.*/bin/python 2>/dev/null | sort -V | tail -1); \
		p=$${p:-$$(command -v python$$v)}; \
		if ! $$p -c 'import sys; sys.exit(not sys.argv[1].startswith("%d.%d" % sys.version_info[:2]))' \
			$$v 2>/dev/null; then echo "python$$v is not here"; continue; fi; \
		echo "== $$v: $$p"; \
		{ $(MAKE) --no-print-directory setup PYTHON=$$p VENV=.venv-$$v && \
			.venv-$$v/bin/python -m scripts.test -n $(WORKERS) --dist loadgroup $(ARGS); } \
			|| failed="$$failed $$v"; \
	done; test -z "$$failed" || { echo "failed on:$$failed" >&2; exit 1; }

test-long: setup tools  ## the long forms: more rounds, more seeds, more data
	HEADRACE_TEST_LONG=1 $(BIN)/python -m pytest -m "long or not long" --timeout 3600

# A checkout of github.com/Aiven-Open/karapace, and where the environment of its tests is to be.
KARAPACE ?=
KARAPACE_VENV ?= $(KARAPACE)/.venv

test-rest-proxy: setup  ## Karapace's REST tests, from a checkout KARAPACE=..., against the HTTP API
	@test -n "$(KARAPACE)" || { echo "set KARAPACE= to a checkout of Karapace" >&2; exit 1; }
	$(BIN)/python -m scripts.rest_proxy "$(KARAPACE)" --environment "$(KARAPACE_VENV)"

check: setup  ## format, lint, types, imports, dead code, generated pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.dead_code
	$(BIN)/python -m scripts.reference --check

format: setup  ## write the format that check wants
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz: setup  ## coverage-guided fuzzing of every decoder for SECONDS (60)
	$(PIP) install --only-binary :all: atheris
	$(BIN)/python -m fuzz.decode --seconds $(SECONDS)

bench: setup  ## side by side with Apache Kafka; writes docs/benchmarks.md
	$(BIN)/python -m bench

bench-spark: setup tools  ## Spark's own Kafka connector and ours; writes docs/benchmarks-spark.md
	$(BIN)/python -m bench.spark

bench-short: setup  ## the same with two pairs, for daily use
	$(BIN)/python -m bench --short

# A commit to compare with; PAIRS of each measurement.
BEFORE ?= HEAD
PAIRS ?= 7

bench-commits: setup  ## this tree beside the commit BEFORE=..., and whether anything became slower
	$(BIN)/python -m bench.commits $(BEFORE) --pairs $(PAIRS)

docs: setup  ## write the pages that are made from code, and CHANGELOG.md from changelog.d/
	$(BIN)/python -m scripts.reference
	$(BIN)/python -m scripts.changelog

lock: setup  ## pin the newest versions in constraints.txt
	$(PIP) install uv
	$(BIN)/python -m scripts.lock

wheel: setup  ## build dist/headrace-*.whl
	$(BIN)/python -m hatchling build --target wheel

clean:  ## remove everything that was made
	rm -rf $(VENV) .venv-3.* build dist .tools .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
