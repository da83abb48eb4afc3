PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# What computes: arrays in, arrays out, and quick to test.
CORE := graphs costs simulators solvers policies learning

.PHONY: run measure train test types parallel check nightly docs clean
# Keeps the stamps, which are made by a pattern.
.SECONDARY:

run: $(VENV)/.installed-plots
	$(BIN)/python -m experiments.main --config=configs/laptop.py --task=compare --workdir=runs/laptop
	$(BIN)/python -m experiments.main --config=configs/quickstart.py --workdir=runs/machine \
		--config.graph=two_stream:size=128 --config.measure_s=5

measure: $(VENV)/.installed-plots
	$(BIN)/python -m experiments.main --config=configs/quickstart.py --workdir=runs/quickstart

train: $(VENV)/.installed-plots
	$(BIN)/python -m experiments.main --config=configs/hsdag.py --task=compare --workdir=runs/train \
		--config.methods=heft,hierarchical:variant=tuned,hsdag --config.evaluate=simulate

test: $(VENV)/.installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(MAKE) --no-print-directory --jobs=2 types parallel
	$(BIN)/python -m pytest -m 'alone and not nightly'

types:
	$(BIN)/mypy

parallel:
	$(BIN)/python -m pytest -m 'not alone and not nightly' --numprocesses=2 --dist=worksteal

# For the inner loop: of the tests those of the core that are quick.
check: $(VENV)/.installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest -m 'not alone and not slow and not nightly' --numprocesses=2 --dist=worksteal \
		tests/test_imports.py tests/test_arguments.py $(CORE:%=tests/%)

# The other cases of the families of which `make test` runs a sample, and slow tests.
nightly: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m nightly --numprocesses=2 --dist=worksteal

# The site of the documentation; a broken link fails.
docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build -q -W --keep-going -c docs . build/site
	@echo "open build/site/index.html"

# Removes what can be rebuilt; the results in runs/ stay.
clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Remove a half-built venv, so that the next run does not mistake it for a complete one.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# The stamps of extras are older than what they depend on when a requirement may have changed.
$(VENV)/.installed-%: setup.py pyproject.toml | $(BIN)/python
	@echo "installing into $(VENV), about two minutes"
	$(PIP) --editable '.[plots,$*]'
	touch $(VENV)/.installed-plots $@
