# Each target builds what it needs: a fresh machine has Python ≥ 3.11, git and make.
# certify needs the package alone; test, lint and bench also its extras.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e
RUN ?= runs/vehicle
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: setup setup-test browser openssh certify test test-fast test-full lint docs bench clean

setup: .venv/.installed

setup-test: .venv/.installed-test browser openssh

# The report is tested in a real browser: Debian's, unless there is one.
browser:
	command -v chromium > /dev/null || { $(SUDO) apt-get update -qq && \
	$(SUDO) apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core > /dev/null; }

# Signatures are tested with the real ssh-keygen: Debian's, unless there is one.
openssh:
	command -v ssh-keygen > /dev/null || { $(SUDO) apt-get update -qq && \
	$(SUDO) apt-get install -qq -y --no-install-recommends openssh-client > /dev/null; }

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

# While developing: every module, in a minute.
test-fast: setup-test
	$(BIN)/pytest --numprocesses logical -m "not slow"

# What needs minutes by nature, at full size.
test-full: lint
	PBC_TEST_SIZE=full $(BIN)/pytest --numprocesses logical

lint: setup-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: setup-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: setup-test
	$(BIN)/pbc bench vehicle
	$(BIN)/pbc bench learn
	$(BIN)/pbc bench continuous
	$(BIN)/pbc bench monitor
	$(BIN)/pbc bench rollouts
	$(BIN)/pbc bench grasping
	$(BIN)/pbc bench swing
	$(BIN)/pbc bench fly

clean:
	rm -rf .venv runs site
