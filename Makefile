# Each target builds what it needs: a fresh machine has Python ≥ 3.11, git and make.
# certify needs the package alone; test, lint and bench also its extras.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e
RUN ?= runs/vehicle

.PHONY: setup setup-test certify test lint bench clean

setup: .venv/.installed

setup-test: .venv/.installed-test

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) .
	touch $@

.venv/.installed-test: .venv/.installed
	$(INSTALL) ".[test]"
	touch $@

certify: setup
	$(BIN)/pbc learn vehicle --out $(RUN) --force
	$(BIN)/pbc verify $(RUN)

test: lint
	$(BIN)/pytest --numprocesses logical

lint: setup-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: setup-test
	$(BIN)/pbc bench vehicle
	$(BIN)/pbc bench learn
	$(BIN)/pbc bench continuous
	$(BIN)/pbc bench monitor
	$(BIN)/pbc bench rollouts

clean:
	rm -rf .venv runs
