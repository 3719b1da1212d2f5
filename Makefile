# Needs git, make and Python 3.11 or newer with venv; no root. `make` lists the targets.

PYTHON ?= python3
BIN = .venv/bin
LOWEST = build/lowest
NEWEST = build/newest
# Listed, because ruff would also format the programs in docs/, whose layout is for readers.
PROGRAM = setup.py svcd twisted tests benchmarks clients examples .ci

.DEFAULT_GOAL := help
SEEDS ?= 1,2,3,4,5
NODES ?= 30
SOAK_MINUTES ?= 30
# The slow tests that coverage needs: some code runs only in whole node processes.
WHOLE = tests/cli/operator tests/cli/test_process.py tests/operating/test_operator_interface.py $(addprefix tests/process_level/test_, \
	starting.py mainnet.py operator_port.py joining.py)
# About half of the work of the quick tests, to split it between two processes.
HALF = tests/p2p tests/simulation tests/node tests/net tests/store
SLOW = slow and not story and not long
# `$(call with,PATTERN)`: the test files that contain PATTERN, to import only these where few tests of all are wanted.
with = $(sort $(shell grep -rlE --include='test_*.py' '$(1)' tests))
STORY_FILES = $(call with,mark\.story)
LONG_FILES = $(call with,mark\.long|hypothesis)
SLOW_FILES = $(call with,mark\.slow)
# The groups of what `make test-all` adds, those that take longest first: four processes take them one after the other,
# because the tests wait as much as they work. "others" has what is not named, and all that installs tools into build.
GROUPS = browser others long process_level engines faults callers p2p cluster benchmarks simulation
FILES_engines = tests/browser/test_engines.py
FILES_callers = tests/cli/test_hostile_node.py tests/clients/test_hostile_node.py
FILES_benchmarks = tests/test_benchmarks.py
FILES_long = $(LONG_FILES)
FILES_browser = $(filter-out $(FILES_engines),$(filter tests/browser/%,$(SLOW_FILES)))
FILES_others = $(filter-out $(foreach group,$(filter-out others long,$(GROUPS)),$(FILES_$(group))),$(SLOW_FILES))
$(foreach group,process_level faults p2p cluster simulation,\
	$(eval FILES_$(group) = $$(filter tests/$(group)/%,$$(SLOW_FILES))))
MARKED_long = long or (hypothesis and not slow)
# What shows that svcd works with a version of its dependencies: for each of them the tests of what is built on it.
DEPENDENT = tests/composition tests/metrics tests/net tests/process tests/web tests/test_config.py \
	$(addprefix tests/chain/test_,protocol_vectors.py signature.py work.py) \
	$(addprefix tests/cli/test_,http_client.py main.py process.py prompts.py) tests/cli/wallet/test_keys.py \
	$(addprefix tests/clients/test_python_,calls.py exchange.py) \
	$(addprefix tests/commerce/test_,delivery_wire.py dispatcher.py webhook_service.py) \
	$(addprefix tests/node/test_,node_context.py threads.py) $(addprefix tests/p2p/test_,service.py transport.py) \
	$(addprefix tests/pages/test_,page.py qr.py) tests/rpc/test_sites.py tests/store/test_database.py
REPORTS = $(addprefix build/,stories.xml half.xml quick.xml)
ALL_REPORTS = $(patsubst %,build/%.xml,$(GROUPS))
# `beside NAME OPTION…`, for the background: runs pytest with its report in build/NAME.log and build/NAME.xml.
# The tests start hundreds of Python programs, which share the bytecode cache instead of compiling svcd each. A make that
# they start is none of ours, and has its own options.
BESIDE = mkdir -p build; unset PYTHONDONTWRITEBYTECODE MAKEFLAGS; \
	beside() { name=$$1; shift; $(BIN)/pytest --junitxml=build/$$name.xml "$$@" > build/$$name.log 2>&1; }
FUZZ_SECONDS ?= 60
# What the stories of plugins/pretix run on, and the sources of plugins/vendure and of its stories.
PRETIX = pretix==2026.8.0
VENDURE = src test example dashboard package.json tsconfig.json eslint.config.mjs .prettierrc.json .prettierignore
# What the component of plugins/vendure for the dashboard is compiled against.
DASHBOARD = 3.7.3
DASHBOARD_SHA256 = 0cd686bd48010aefc142321d24a79eea209a6addfc9d20b4d60e61b363820a30
RELEASE ?= bookworm trixie
.PHONY: help docs run devnet shop test test-all check bench torture simulate soak fuzz mutate coverage debian test-deb lowest newest requirements release image image-packages deb test-image test-plugins test-pretix test-vendure clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

run: .venv/installed ## run a mainnet node that makes blocks: data in ./data, on 127.0.0.1:8645
	$(BIN)/twistd -n --pidfile= svcd --data-dir=data --set=participation.enabled=true --set=participation.alone=true

devnet: .venv/installed ## run a devnet of one node: data in ./devnet, on 127.0.0.1:18645
	$(BIN)/svc devnet

shop: .venv/installed-shop ## run a devnet and the shop of examples/shop, and say what to click: on 127.0.0.1:5000
	@$(BIN)/python examples/shop/start.py

test: .venv/installed-test ## run the quick tests and the main stories, in about 5½ minutes on 2 cores
	@echo "The stories and half of the quick tests run in parallel; their reports come at the end."; rm -f $(REPORTS); $(BESIDE); \
	export HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick}; \
	beside stories -m 'slow and story' $(STORY_FILES) & stories=$$!; beside half -m 'not slow' $(HALF) & half=$$!; \
	$(BIN)/pytest --junitxml=build/quick.xml -m 'not slow' $(addprefix --ignore=,$(HALF)); quick=$$?; \
	wait $$stories; stories=$$?; wait $$half; half=$$?; cat build/stories.log build/half.log; \
	$(BIN)/python -m tests.programs $(REPORTS); exit $$((stories || half || quick))

test-all: test ## run make test, then all other tests: what must pass before a merge
	@echo "The other tests run in parallel, in groups; the report of each comes at its end."; rm -f $(ALL_REPORTS); \
	$(MAKE) --no-print-directory --keep-going --jobs=4 $(addprefix group-,$(GROUPS)); groups=$$?; \
	$(BIN)/python -m tests.programs $(REPORTS) $(ALL_REPORTS); exit $$groups

group-%: .venv/installed-test
	@$(BESIDE); beside $* -m '$(or $(MARKED_$*),$(SLOW))' $(FILES_$*); group=$$?; cat build/$*.log; exit $$group

check: .venv/installed-test ## check style, types, the JavaScript of the pages and the rules of the architecture
	$(BIN)/ruff check
	$(BIN)/ruff format --check $(PROGRAM)
	$(BIN)/mypy
	$(BIN)/python .ci/javascript/check.py
	$(BIN)/pytest -q tests/test_architecture.py

bench: .venv/installed-test ## run the benchmarks, each as a ratio to a baseline of the same run
	$(BIN)/python -m benchmarks

torture: .venv/installed-mutate ## run all tests with many more examples and kills, then mutate the rules
	HYPOTHESIS_PROFILE=torture $(BIN)/pytest -o faulthandler_timeout=0
	$(BIN)/python -m tests.mutation

mutate: .venv/installed-mutate ## mutate the rules in a thousand places, and check that a test fails for each
	$(BIN)/python -m tests.mutation

fuzz: .venv/installed-fuzz ## fuzz the parsers of untrusted input, FUZZ_SECONDS=60 for each
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python -m tests.fuzz

coverage: .venv/installed-test ## measure the line and branch coverage of the fast tests and of those that run whole nodes
	@rm -rf build/coverage; mkdir -p build/coverage
	@# Without tests that measure time, since the tracer slows them down. A fixed seed makes the result reproducible.
	@echo "Half of the tests run in parallel; their report comes at the end."; \
	measured="$(BIN)/coverage run -m pytest -q -p no:cacheprovider --hypothesis-seed=0"; quick='not slow and not timed'; \
	$$measured -m "$$quick" $(addprefix --ignore=,$(HALF)) > build/coverage/tests.log 2>&1 & beside=$$!; \
	$$measured -m slow $(WHOLE); whole=$$?; $$measured -m "$$quick" $(HALF); half=$$?; \
	wait $$beside; beside=$$?; cat build/coverage/tests.log; \
	$(BIN)/coverage combine -q && $(BIN)/coverage html -q && $(BIN)/coverage json -q && \
	$(BIN)/python .ci/covered.py build/coverage/report.json; tried=$$?; \
	echo "Uncovered lines: build/coverage/html/index.html"; exit $$((whole || half || beside || tried))

simulate: .venv/installed-test ## run networks of simulated nodes for SEEDS=1,2,3 and NODES=30
	SVCD_SIMULATION_SEEDS=$(SEEDS) SVCD_SIMULATION_NODES=$(NODES) $(BIN)/pytest -o faulthandler_timeout=0 tests/simulation

soak: .venv/installed-test ## run two busy nodes for SOAK_MINUTES=30, and check that nothing leaks and no event is lost
	SVCD_SOAK_MINUTES=$(SOAK_MINUTES) $(BIN)/pytest -s -o faulthandler_timeout=0 tests/soak

test-plugins: test-pretix test-vendure ## run the stories of payments of plugins/ on the real shop software; the first time this installs it

test-pretix: .venv/installed build/pretix/installed
	cd plugins/pretix/pretix_svc_pay && ../../../build/pretix/venv/bin/django-admin compilemessages > /dev/null
	cd plugins/pretix && ../../build/pretix/venv/bin/flake8 . && ../../build/pretix/venv/bin/isort -q -c . && \
		../../build/pretix/venv/bin/python -m pytest

# Node.js finds packages only beside the sources, and those of the repository stay as they are.
test-vendure: .venv/installed build/vendure/installed
	@cd build/vendure && rm -rf $(VENDURE) lib && (cd ../../plugins/vendure && cp -R $(VENDURE) ../../build/vendure)
	cd build/vendure && npm run --silent build && npm run --silent lint && SVC=$(CURDIR)/$(BIN)/svc npm test --silent

docs: .venv/installed-test ## write what is generated in docs/: settings, limits, constants of peers, commands, OpenAPI
	$(BIN)/python -m tests.docs.settings_page
	$(BIN)/python -m tests.docs.limits_page
	$(BIN)/python -m tests.docs.peers_page
	$(BIN)/python -m tests.docs.command_line_page
	$(BIN)/python -m tests.schema.documents

debian: .venv/installed-test ## run the commands of README and docs/operations.md on fresh Debian systems, RELEASE="bookworm trixie"; as root
	SVCD_DEBIAN_RELEASES="$(RELEASE)" $(BIN)/pytest -s tests/debian/first_commands.py tests/debian/invitation.py tests/debian/story.py tests/debian/daemon.py

test-deb: .venv/installed-test ## install, upgrade, remove and purge the packages of make deb on fresh Debian systems, RELEASE="bookworm trixie"; as root
	SVCD_DEBIAN_RELEASES="$(RELEASE)" $(BIN)/pytest -s tests/debian/package.py

test-image: .venv/installed-test image ## run the image with podman as docs/container.md says; as root, with podman, runc, iptables, nginx and Prometheus
	SVCD_PODMAN_OPTIONS="$(PODMAN_OPTIONS)" $(BIN)/pytest -s tests/container/story.py

lowest: ## run the tests of what uses dependencies with the oldest ones that setup.py allows
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python .ci/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check -e '.[test]' -c $(LOWEST)/constraints.txt
	HYPOTHESIS_PROFILE=few $(LOWEST)/bin/pytest -m 'not slow and not socket' $(DEPENDENT) -p no:cacheprovider

newest: ## run the quick tests with the newest Python of this machine, if it is newer than python3
	@for minor in 12 13 14; do \
		if $(PYTHON) -c "import sys; sys.exit(sys.version_info >= (3, $$minor))" && \
			python3.$$minor -c 'import ensurepip, venv' 2> /dev/null; then newest=python3.$$minor; fi; \
	done; \
	if [ -z "$$newest" ]; then echo "No Python newer than $$($(PYTHON) -V) is installed"; exit 0; fi; \
	$$newest -m venv --clear $(NEWEST) && $(NEWEST)/bin/pip install --quiet --disable-pip-version-check -e '.[test]' && \
	HYPOTHESIS_PROFILE=few $(NEWEST)/bin/pytest -m 'not slow' -p no:cacheprovider

requirements: ## pin the versions and hashes of what a node runs, and of the tools of make release
	$(PYTHON) -m venv --clear build/pins && build/pins/bin/pip install --quiet --disable-pip-version-check uv
	@for pins in "conf/requirements.txt setup.py" "conf/requirements-postgresql.txt setup.py --extra postgresql" \
		".ci/requirements.txt .ci/requirements.in"; do set -- $$pins; pinned=$$1; shift; \
		build/pins/bin/uv pip compile "$$@" --universal --python-version 3.11 --generate-hashes --upgrade --quiet \
			--no-annotate --custom-compile-command "make requirements" --output-file $$pinned || exit 1; done

release: build/release/installed ## build wheel, sdist, pinned requirements, list of components and checksums into dist, the same bytes each time
	build/release/bin/python .ci/release.py

image: build/release/installed ## build a container image of the commit into build/packages, for podman and Docker, on Debian or Ubuntu
	SNAPSHOT=$(SNAPSHOT) build/release/bin/python .ci/image.py

image-packages: build/release/installed ## pin the versions and hashes of the packages of Debian in the image
	build/release/bin/python .ci/debian_packages.py

deb: build/release/installed ## build a Debian package for each RELEASE="bookworm trixie" into build/packages; without root
	build/release/bin/python .ci/deb.py $(RELEASE)

clean: ## remove all generated files except the data of nodes
	rm -rf .venv build dist svcd.egg-info clients/python/src/svc_pay.egg-info twisted/plugins/dropin.cache .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

build/release/installed: .ci/requirements.txt
	$(PYTHON) -m venv --clear build/release
	build/release/bin/pip install --quiet --disable-pip-version-check --require-hashes -r .ci/requirements.txt
	@touch $@

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

.venv/installed-shop: examples/shop/requirements.txt clients/python/pyproject.toml .venv/installed
	@echo "Installing the libraries of the shop and the Python client into .venv"
	@$(BIN)/pip install --quiet --disable-pip-version-check -r examples/shop/requirements.txt -e ./clients/python
	@touch $@

.venv/installed-test: setup.py | $(BIN)/pip
	@echo "Installing svcd and its test tools into .venv (once, and again when setup.py changes)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch .venv/installed $@

build/pretix/installed: plugins/pretix/pyproject.toml clients/python/pyproject.toml
	@echo "Installing pretix, the plugin and the Python client into build/pretix (600 MB, a minute)"
	@mkdir -p build/pretix && $(PYTHON) -m venv --clear build/pretix/venv
	@build/pretix/venv/bin/pip install --quiet --disable-pip-version-check $(PRETIX) -e ./clients/python -e './plugins/pretix[test]'
	@touch $@

build/vendure/installed: plugins/vendure/package-lock.json
	@echo "Installing Vendure into build/vendure (260 MB, half a minute)"
	@rm -rf build/vendure && mkdir -p build/vendure && cp plugins/vendure/package.json plugins/vendure/package-lock.json build/vendure
	@cd build/vendure && npm ci --ignore-scripts --no-audit --no-fund --silent
	@# The sources of the dashboard, 23 MB, without their 600 MB of dependencies.
	@cd build/vendure && npm pack --silent @vendure/dashboard@$(DASHBOARD) > /dev/null && \
		echo "$(DASHBOARD_SHA256)  vendure-dashboard-$(DASHBOARD).tgz" | sha256sum --check --quiet && \
		mkdir node_modules/@vendure/dashboard && \
		tar -xzf vendure-dashboard-$(DASHBOARD).tgz --strip-components=1 -C node_modules/@vendure/dashboard
	@touch $@

.venv/installed-fuzz: .venv/installed-test
	@echo "Installing the fuzzer into .venv (atheris has wheels for Python 3.11 to 3.13 on Linux)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	@touch $@

.venv/installed-mutate: .venv/installed-test
	@echo "Installing the mutation tester into .venv"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[mutate]'
	@touch $@
