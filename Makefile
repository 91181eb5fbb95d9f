# Each target builds what it needs: a fresh machine has Python ≥ 3.11, git and make.
PYTHON ?= python3
BIN := .venv/bin
RUN ?= runs/vehicle

.PHONY: setup certify test lint bench clean

setup: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	touch $@

certify: setup
	$(BIN)/pbc learn vehicle --out $(RUN) --force
	$(BIN)/pbc verify $(RUN)

test: setup lint
	$(BIN)/pytest --numprocesses logical

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: setup
	$(BIN)/pbc bench vehicle
	$(BIN)/pbc bench learn

clean:
	rm -rf .venv runs
