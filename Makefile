PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo java test test-slow crash crash-quick crash-sim mutants mutation-score audit-demo interop lint types architecture check bench bench-quick bench-syncs bench-where bench-functions bench-audit bench-startup wheel-test clean

help: ## show what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1#\2/p' $(MAKEFILE_LIST) | column -t -s '#'

setup: $(READY) ## make a virtual environment with everything the other targets need

$(READY): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "this Python cannot make a virtual environment; on Debian: apt install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup ## write, kill the writer, recover, and count what was lost (ten seconds)
	@$(BIN)/ledgerstore demo

# One process runs all tests on Spark, and pays for one session.
PYTEST := $(BIN)/pytest -n auto --dist loadgroup

java: setup ## see that there is a Java 17 for the tests on Spark; installs one where that may be done
	@$(BIN)/python tests/support/provide_java.py || true

test: java ## run the tests (seven minutes)
	$(PYTEST)

test-slow: java ## run the tests that take minutes: a hundred thousand mutated files, a cluster of Spark's
	$(PYTEST) -m slow

crash-sim: setup ## crash the store in forty thousand ways on a simulated disk (eight minutes)
	$(BIN)/python tests/support/crash_sim.py $(CRASH_SIM)

crash: setup ## crash the store in every way the laboratory knows, real power cuts among them (eleven minutes)
	$(BIN)/ledgerstore crash run --budget 11m --out .crash $(CRASH)

crash-quick: setup ## the same for three minutes
	$(BIN)/ledgerstore crash run --budget 3m --out .crash $(CRASH)

mutants: setup ## plant eighty bugs in copies of the code, and see that each is found (eight minutes)
	$(BIN)/python tests/support/mutants.py --quick $(MUTANTS)

mutation-score: setup ## the same, asking the crash laboratory first; writes docs/mutants.json (fifteen minutes)
	$(BIN)/python tests/support/mutants.py --score

audit-demo: setup ## three stores, damaged, and the audit on Spark that finds it; writes .audit-demo/report (half a minute)
	@$(BIN)/python tests/support/audit_demo.py .audit-demo

interop: setup ## prove with the real Apache BookKeeper that it reads our files, and we its (three minutes; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/interop.py $(INTEROP)

lint: setup ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## check types, strictly
	$(BIN)/mypy

architecture: setup ## check who imports whom, and who owns what is dangerous
	$(BIN)/pytest -q tests/test_architecture.py

check: lint types test ## everything that must hold before a change is shared

bench: setup ## the store against LevelDB, RocksDB, SQLite, LMDB and the raw limit; writes .bench/bench.html (twenty minutes)
	$(BIN)/python bench/store.py --json .bench/bench.json --html .bench/bench.html $(BENCH)

bench-quick: setup ## the same, to see where it stands; writes nothing (three minutes)
	$(BIN)/python bench/store.py --quick $(BENCH)

bench-syncs: setup ## count the syncs of everybody: one for each acknowledged add or batch
	$(BIN)/python bench/store.py --check-syncs

bench-where: setup ## where the time of an add goes, and what the slowest adds wait for (two minutes)
	$(BIN)/python bench/where.py $(BENCH)

bench-functions: setup ## time the hot functions
	$(BIN)/pytest -q bench --benchmark-enable --benchmark-only --benchmark-columns=median,stddev,ops

bench-audit: setup ## the audit's kernel against C and a loop in Python: entry logs read, verified, told as runs (a minute)
	$(BIN)/python bench/audit_kernel.py $(BENCH)

bench-startup: setup ## time `import storage` and `ledgerstore --help` against bare Python
	$(BIN)/python bench/startup.py

# What can differ between a checkout and what is installed of it: entry points, files beside the code, what is
# shipped to Spark's workers, and every import. All the rest has been tested before.
OF_THE_PACKAGE := tests/test_store.py tests/test_startup.py tests/docs tests/recovery/shell tests/recovery/page \
	tests/recovery/crashlab tests/recovery/audit/spark

wheel-test: setup ## build the wheel, install it alone, and run against it what a package can get wrong
	rm -rf build dist .wheel-test
	$(BIN)/python -m build --quiet --wheel
	$(PYTHON) -m venv .wheel-test
	.wheel-test/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		"$$(echo dist/*.whl)[audit]" pytest pytest-benchmark pytest-xdist hypothesis
	.wheel-test/bin/python -P -c 'import storage, sys; sys.exit(".wheel-test" not in storage.__file__)'
	.wheel-test/bin/python -P tests/support/import_all.py storage recovery
	.wheel-test/bin/python -P -m pytest -q -n auto --dist loadgroup -p no:cacheprovider $(OF_THE_PACKAGE)

clean: ## remove everything that was made
	rm -rf $(VENV) build dist .wheel-test *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .bench .bench-* .interop .crash .audit-demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
