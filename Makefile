# Each target makes its own virtual environment; nothing is installed outside of it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.DEFAULT_GOAL := help
.PHONY: help demo test fault soak check bench clean
MINUTES ?= 10

help: ## Say what there is to make.
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1 — \2/p' Makefile

demo: $(VENV)/.demo ## Watch two thousand real jobs being done, and a worker being killed.
	$(BIN)/cogworker demo

test: $(VENV)/.test ## Run the tests, on a real server and real processes.
	$(BIN)/python -m pytest -n auto -m 'not long'

fault: $(VENV)/.test ## Every way to die, the long ones too; writes docs/reliability.md.
	PYTHONPATH=tests $(BIN)/python -m pytest -n auto -p support.reliability tests/fault

soak: $(VENV)/.test ## Mixed load and random faults for MINUTES=10, and a balance at the end.
	PYTHONPATH=tests $(BIN)/python -m support.soak $(MINUTES)

check: $(VENV)/.check ## Format, lint, types, import contracts, Lua.
	$(BIN)/ruff format --check src tests bench tools
	$(BIN)/ruff check src tests bench tools
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/typing/mypy.ini
	$(BIN)/lint-imports
	$(BIN)/python tools/check_lua.py

bench: $(VENV)/.demo ## Measure speed, next to the machine's own limits.
	$(BIN)/python -m bench

clean: ## Remove the virtual environment and what tools leave behind.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[demo]'
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	$(PIP) install -e '.[all]' --group test
	@touch $@

$(VENV)/.check: $(VENV)/.test
	$(PIP) install --group check
	@touch $@
