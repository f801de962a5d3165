# Every target sets up what it needs; nothing but python3 (3.11 or newer) and make has to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILE := uv pip compile --quiet --universal --no-strip-extras --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --custom-compile-command "make lock"
TESTS ?= mustit_pipeline_tests
DOMAIN_TESTS := mustit_pipeline_tests/unit/domain

export DAGSTER_DISABLE_TELEMETRY := yes
# Tests and `mustit up` start many processes: without stored bytecode each of them would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

# With hashes pip takes a pin of psycopg[binary, pool] for none of psycopg[pool], which procrastinate asks for.
define SPLIT_EXTRAS
import re, pathlib
lock = pathlib.Path("requirements-dev.lock")
entry = re.compile(r"^psycopg\[binary, pool\](==.*\n(?:    .*\n)+)", re.M)
lock.write_text(entry.sub(r"psycopg[binary]\1psycopg[pool]\1", lock.read_text()))
endef
export SPLIT_EXTRAS

.PHONY: help setup up demo test lint types rules definitions domain coverage format bench chaos lock clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else f"python3 is {v[0]}.{v[1]}; mustit_pipeline needs 3.11 or newer: make PYTHON=python3.12 ...")'
	@echo "setting up $(VENV) (a minute or two, once) ..."
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP) ## the environment alone: .venv with the locked dependencies and the mustit command

up: setup ## everything, with the Dagster UI on http://127.0.0.1:3000, until Ctrl-C
	@$(BIN)/mustit up

demo: setup ## crawl, change, crawl again and compare, headless; prints a summary
	@$(BIN)/mustit demo

lint: setup ## formatting, lint rules, types, import rules, Dagster definitions
	@$(MAKE) --no-print-directory -j2 types rules definitions

types:
	$(BIN)/pyright

rules:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

definitions:
	$(BIN)/python -m mustit_pipeline_tests.dagster_defs.strictly mustit_pipeline.definitions

# The domain's own unit tests reach at least 80 % of it.
domain:
	$(BIN)/pytest $(DOMAIN_TESTS) -p no:cacheprovider --cov=mustit_pipeline.domain --cov-fail-under=80

format: setup ## let ruff format and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Types are checked beside the domain's tests; then three on two cores, since many tests wait for something.
test: setup ## all checks and tests, on real PostgreSQL and Redis
	@$(MAKE) --no-print-directory -j2 types rules definitions domain
	$(BIN)/pytest $(TESTS) --ignore=$(DOMAIN_TESTS) -n 3 --dist loadfile --no-loadscope-reorder

# A failed test is for `make test` to say; what it reached counts.
coverage: setup ## how much of each room the tests reach: a table, and build/coverage/ (slower than make test)
	@rm -rf build/coverage && mkdir -p build/coverage
	-$(BIN)/pytest $(TESTS) -n 3 --dist loadfile --no-loadscope-reorder \
		--cov --cov-report=json:build/coverage/coverage.json --cov-report=html:build/coverage/html
	@$(BIN)/python -m mustit_pipeline_tests.coverage_by_room build/coverage/coverage.json

bench: setup ## the benchmark suite: a table and build/bench.json
	$(BIN)/python -m benchmarks

chaos: setup ## the long fault-injection suite: a table and JSON
	$(BIN)/python -m mustit_pipeline_tests.faults

lock: ## refresh the lock files from pyproject.toml (needs uv)
	$(COMPILE) --all-extras -o requirements.lock pyproject.toml
	$(COMPILE) --group dev -o requirements-dev.lock pyproject.toml
	@$(PYTHON) -c "$$SPLIT_EXTRAS"

clean: ## remove the environment and caches; .mustit (the data) stays
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
