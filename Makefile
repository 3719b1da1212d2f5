# Needs git, make and Python 3.11 or newer with venv; no root. `make` alone says what there is.

PYTHON ?= python3
BIN = .venv/bin
LOWEST = build/lowest
NEWEST = build/newest
# Named, for ruff would format the programs in docs/ as well, and those are set for their readers.
PROGRAM = setup.py svcd twisted tests benchmarks .ci

.DEFAULT_GOAL := help
SEEDS ?= 1,2,3,4,5
NODES ?= 30
SOAK_MINUTES ?= 30
# The slow tests that coverage needs: what puts the node together runs in processes of its own only.
WHOLE = tests/process tests/console tests/operating/test_operator_interface.py $(addprefix tests/process_level/test_, \
	starting.py mainnet.py operator_port.py joining.py)
# About half of the work of the quick tests, so that two processes share it.
HALF = tests/p2p tests/simulation tests/node tests/rpc
FUZZ_SECONDS ?= 60
RELEASE ?= bookworm trixie
.PHONY: help run devnet test test-all check bench torture simulate soak fuzz mutate coverage debian lowest newest clean

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

run: .venv/installed ## run a mainnet node that makes blocks: data in ./data, on 127.0.0.1:8645
	$(BIN)/twistd -n --pidfile= svcd --data-dir=data --set=participation.enabled=true --set=participation.alone=true

devnet: .venv/installed ## run a devnet of one node: data in ./devnet, on 127.0.0.1:18645
	@umask 077 && mkdir -p devnet && for secret in manage-token signing-secret; do \
		test -s devnet/$$secret || $(BIN)/python -c 'import secrets; print(secrets.token_urlsafe(32))' > devnet/$$secret || exit 1; \
	done
	$(BIN)/twistd -n --pidfile= svcd --config=conf/devnet.toml

test: .venv/installed-test ## run all tests: quick, slow and long ones beside each other
	@mkdir -p build; rm -f build/quick.xml build/long.xml build/slow.xml; \
	echo "The quick tests and the long ones run beside these; their reports come at the end."; \
	$(BIN)/pytest -m long --junitxml=build/long.xml > build/long.log 2>&1 & long=$$!; \
	$(BIN)/pytest -m 'not slow' --junitxml=build/quick.xml > build/quick.log 2>&1 & quick=$$!; \
	$(BIN)/pytest -m 'slow and not long' --junitxml=build/slow.xml; slow=$$?; \
	wait $$long; long=$$?; wait $$quick; quick=$$?; cat build/long.log build/quick.log; \
	$(BIN)/python -m tests.programs build/quick.xml build/long.xml build/slow.xml; exit $$((slow || long || quick))

test-all: test ## run everything that must pass before a merge; at present the same as make test

check: .venv/installed-test ## check style, types and the house rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check $(PROGRAM)
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_architecture.py

bench: .venv/installed-test ## measure, each figure as a ratio against a baseline of the same run
	$(BIN)/python -m benchmarks

torture: .venv/installed-mutate ## run all tests with the long counts, then mutate the rules: hundreds of kills, thousands of examples
	HYPOTHESIS_PROFILE=torture $(BIN)/pytest
	$(BIN)/python -m tests.mutation

mutate: .venv/installed-mutate ## change the rules in a thousand places, one at a time, and see that their tests notice
	$(BIN)/python -m tests.mutation

fuzz: .venv/installed-fuzz ## fuzz the parsers of what strangers send, FUZZ_SECONDS=60 for each
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python -m tests.fuzz

coverage: .venv/installed-test ## say which lines and branches the fast tests do not try, nor those that run the whole node
	@rm -rf build/coverage; mkdir -p build/coverage
	@# Not those that measure time: the tracer slows everything down. The same examples each time: what is tried stays so.
	@echo "Half of the tests run beside these; their report comes at the end."; \
	measured="$(BIN)/coverage run -m pytest -q -p no:cacheprovider --hypothesis-seed=0"; quick='not slow and not timed'; \
	$$measured -m "$$quick" $(addprefix --ignore=,$(HALF)) > build/coverage/tests.log 2>&1 & beside=$$!; \
	$$measured -m slow $(WHOLE); whole=$$?; $$measured -m "$$quick" $(HALF); half=$$?; \
	wait $$beside; beside=$$?; cat build/coverage/tests.log; \
	$(BIN)/coverage combine -q && $(BIN)/coverage html -q && $(BIN)/coverage json -q && \
	$(BIN)/python .ci/covered.py build/coverage/report.json; tried=$$?; \
	echo "Each line that is not tried: build/coverage/html/index.html"; exit $$((whole || half || beside || tried))

simulate: .venv/installed-test ## run the network of simulated nodes for SEEDS=1,2,3 and NODES=30
	SVCD_SIMULATION_SEEDS=$(SEEDS) SVCD_SIMULATION_NODES=$(NODES) $(BIN)/pytest tests/simulation

soak: .venv/installed-test ## keep two nodes busy for SOAK_MINUTES=30, and see that nothing grows and no event is lost
	SVCD_SOAK_MINUTES=$(SOAK_MINUTES) $(BIN)/pytest -s tests/soak

debian: .venv/installed-test ## type the commands of README and docs/operations.md on fresh Debians, RELEASE="bookworm trixie"; as root
	SVCD_DEBIAN_RELEASES="$(RELEASE)" $(BIN)/pytest -s tests/debian/first_commands.py tests/debian/story.py

lowest: ## run the unit tests with the oldest dependencies that setup.py allows
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python .ci/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check -e '.[test]' -c $(LOWEST)/constraints.txt
	HYPOTHESIS_PROFILE=few $(LOWEST)/bin/pytest -m 'not slow and not socket' --ignore=tests/simulation -p no:cacheprovider

newest: ## run the unit tests with the newest Python of this machine, where it has one that is newer than python3
	@for minor in 12 13 14; do \
		if $(PYTHON) -c "import sys; sys.exit(sys.version_info >= (3, $$minor))" && \
			python3.$$minor -c 'import ensurepip, venv' 2> /dev/null; then newest=python3.$$minor; fi; \
	done; \
	if [ -z "$$newest" ]; then echo "There is no Python here that is newer than $$($(PYTHON) -V)"; exit 0; fi; \
	$$newest -m venv --clear $(NEWEST) && $(NEWEST)/bin/pip install --quiet --disable-pip-version-check -e '.[test]' && \
	HYPOTHESIS_PROFILE=few $(NEWEST)/bin/pytest -m 'not slow' -p no:cacheprovider

clean: ## remove everything that was made here, except the data of nodes
	rm -rf .venv build dist svcd.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/pip:
	@command -v $(PYTHON) > /dev/null || \
		{ echo "$(PYTHON) is not installed; install Python 3.11 or newer, or name it: make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "svcd needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V); name another: make PYTHON=…"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: setup.py | $(BIN)/pip
	@echo "Installing svcd into .venv (once, and again when setup.py changes)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/installed-test: setup.py | $(BIN)/pip
	@echo "Installing svcd and its test tools into .venv (once, and again when setup.py changes)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch .venv/installed $@

.venv/installed-fuzz: .venv/installed-test
	@echo "Installing the fuzzer and the mutation tester into .venv (atheris has wheels for Python 3.11 to 3.13 on Linux)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	@touch $@

.venv/installed-mutate: .venv/installed-test
	@echo "Installing the mutation tester into .venv"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[mutate]'
	@touch $@
