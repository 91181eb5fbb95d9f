# Each target builds what it needs: a fresh machine has Python ≥ 3.11, git and make.
# certify needs the package alone; docs an extra of its own; test, lint and bench all of them.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
INSTALL = $(PYTHON) -m venv .venv && $(PIP) --upgrade pip && $(PIP) -e
# What a file of tests has learnt once is for one worker; the order is that of tests/conftest.py.
WORKERS := --numprocesses logical --dist loadfile --no-loadscope-reorder
RUN ?= runs/vehicle
MUTANTS ?= 60
SEED ?= 0
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
# Commands that tests start would compile every module anew where this is set.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup setup-test programs certify test test-fast test-full checked bytecode lint mutants docs bench clean

setup: .venv/.installed

setup-test:
	$(MAKE) --jobs 2 .venv/.installed-test programs

# The report is tested in a real browser, signatures with the real ssh-keygen, and MuJoCo's frames
# with EGL: Debian's, unless they are there.
programs:
	{ command -v chromium && command -v ssh-keygen && ls /usr/lib/*/libEGL.so.1 /usr/lib/*/dri; } \
	> /dev/null 2>&1 || { $(SUDO) apt-get update -qq && \
	$(SUDO) apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core openssh-client \
	libegl1 libgl1-mesa-dri > /dev/null; }

.venv/.installed: pyproject.toml constraints.txt
	$(INSTALL) .
	touch $@

.venv/.installed-test: pyproject.toml constraints.txt
	$(INSTALL) ".[test]"
	touch .venv/.installed .venv/.installed-docs $@

.venv/.installed-docs: pyproject.toml constraints.txt
	$(INSTALL) ".[docs]"
	touch .venv/.installed $@

# Simulators of others, which only the tests at full size run.
.venv/.installed-gallery: .venv/.installed-test
	$(PIP) -e ".[gallery]"
	touch $@

certify: setup
	$(BIN)/pbc learn vehicle --out $(RUN) --force
	$(BIN)/pbc verify $(RUN)

# Each worker has a core, and its linear algebra no more than that.
test test-fast test-full: export OMP_NUM_THREADS := 1
test test-fast test-full: export OPENBLAS_NUM_THREADS := 1

test: checked
	$(BIN)/pytest $(WORKERS)

# While developing: every module, in a minute.
test-fast: setup-test
	PBC_TEST_SIZE=fast $(BIN)/pytest $(WORKERS)

# What needs minutes by nature, at full size.
test-full: checked
	$(MAKE) .venv/.installed-gallery
	PBC_TEST_SIZE=full $(BIN)/pytest $(WORKERS)

checked: setup-test
	$(MAKE) --jobs 2 lint bytecode

# Of what tests import, made while the source is checked: each of their workers would make it.
bytecode: .venv/.installed-test
	-$(BIN)/pytest --collect-only --quiet > /dev/null

lint: .venv/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# Break the source at random places, one after another, and list what no test noticed.
mutants: setup-test
	$(PIP) pytest-cov
	$(BIN)/python tests/mutations.py reach
	$(BIN)/python tests/mutations.py draw $(MUTANTS) --seed $(SEED) --out mutants.json
	$(BIN)/python tests/mutations.py run mutants.json

docs: .venv/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: setup-test
	$(BIN)/python benchmarks/vehicle.py
	$(BIN)/python benchmarks/learn.py
	$(BIN)/python benchmarks/continuous.py
	$(BIN)/python benchmarks/bets.py
	$(BIN)/python benchmarks/trials.py
	$(BIN)/python benchmarks/sim_to_real.py
	$(BIN)/python benchmarks/monitor.py
	$(BIN)/python benchmarks/rollouts.py
	$(BIN)/python benchmarks/vector.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/grasping.py
	$(BIN)/python benchmarks/swing.py
	$(BIN)/python benchmarks/fly.py
	[ ! -e /dev/nvidiactl ] || $(BIN)/python benchmarks/gpu.py

clean:
	rm -rf .venv runs site
