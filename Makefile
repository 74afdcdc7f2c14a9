PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := .venv-demo

# Compiled modules are kept, also where the environment says otherwise: each process that runs tests would compile all
# of them again, with pytest's assertions, and each of the thousands of processes that are killed would compile ours.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo java test test-slow test-spark test-docs test-bench setup-3.12 setup-3.13 test-3.12 test-3.13 crash crash-quick crash-sim cluster-mutants cluster-sim cluster-stores cluster-worlds mutants mutation-score audit-demo audit-cluster audit-kills interop interop-zookeeper interop-metadata interop-bookie interop-client interop-autorecovery interop-audit interop-power cluster-chaos client-histories pulsar pulsar-topics topic-owners bookkeeper-tests proof lint types architecture check bench bench-quick bench-syncs bench-where bench-functions bench-audit bench-scale bench-space bench-cluster bench-autorecovery bench-listing bench-versus bench-startup wheel-test docs clean

help: ## show what can be made
	@sed -n 's/^\([a-z0-9. -]*\):.*## \(.*\)/  make \1#\2/p' $(MAKEFILE_LIST) | column -t -s '#'

setup: $(READY) ## make a virtual environment with everything the other targets need

$(READY): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "this Python cannot make a virtual environment; on Debian: apt install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(DEMO)/.ready: setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -m venv $(DEMO)
	@$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

demo: $(DEMO)/.ready ## write, kill the writer, recover, and count what was lost (ten seconds; a small environment of its own)
	@$(DEMO)/bin/ledgerstore demo

java: setup ## look for the Java 17 that tests on Spark need; installs one if that is permitted
	@$(BIN)/python tests/support/install_java.py || true

# Many short tests: neighbours stay together, so that most fixtures of a module are made once. Few long ones: each
# process takes the next test when it has done one, and the longest are first.
FAST := -n auto --dist worksteal
LONG := -n auto --dist load --maxschedchunk 1
ELSEWHERE := (spark or docs or bench)

test: setup ## run the fast tests, of half a second of CPU at most each (90 seconds)
	$(BIN)/pytest $(FAST)

# LONG_TESTS=3:SEED leaves out two thirds of the longest.
test-slow: setup ## run the long tests, and whole sweeps where `make test` takes samples (10 minutes)
	WHOLE_SWEEPS=1 $(BIN)/pytest $(LONG) -m "(slow or sampled) and not $(ELSEWHERE)"

test-spark: java ## run the tests on Spark, in one process with one session; needs Java (90 seconds)
	$(BIN)/pytest -m spark

test-docs: setup ## execute what the documentation shows of the crash laboratory (a minute)
	$(BIN)/pytest $(LONG) -m "docs and not spark"

test-bench: setup ## run every row of the bench once, as a test; its figures are not measurements (half a minute)
	$(BIN)/pytest $(LONG) -m bench

setup-3.12 setup-3.13: setup-%: ## make the virtual environments for tests on Python 3.12 and 3.13
	$(PYTHON) tests/support/run_on_python.py $* --set-up

# SINGLE_ROWS=1 leaves one row of each table.
test-3.12 test-3.13: test-%: setup-% ## run the fast tests on another Python, where there is one (90 seconds)
	$(PYTHON) tests/support/run_on_python.py $*

crash-sim: setup ## crash the store in forty thousand ways on a simulated disk (eight minutes)
	$(BIN)/python tests/support/crash_sim.py $(CRASH_SIM)

cluster-sim: setup ## play sixty thousand schedules of writers, recoveries and readers against failing bookies (a minute)
	$(BIN)/ledgerstore cluster-sim run $(CLUSTER_SIM)

cluster-worlds: setup ## play every order of the messages of small worlds (a minute)
	$(BIN)/ledgerstore cluster-sim run --schedules 0 --worlds small $(CLUSTER_WORLDS)

cluster-stores: setup ## play five thousand such schedules whose bookies are real stores on simulated disks (two minutes)
	PYTHONPATH=tests/support $(BIN)/python tests/support/real_store_schedules.py $(CLUSTER_STORES)

cluster-mutants: setup ## plant bugs into the client of several bookies: the same simulation finds each (two minutes)
	PYTHONPATH=tests/support $(BIN)/python tests/support/cluster_mutants.py $(CLUSTER_MUTANTS)

crash: setup ## crash the store in every way the laboratory knows, real power cuts among them, and the metadata server (thirteen minutes)
	$(BIN)/ledgerstore crash run --budget 11m --out .crash $(CRASH)
	$(BIN)/python tests/support/zookeeper_crashes.py

crash-quick: setup ## the same for three minutes
	$(BIN)/ledgerstore crash run --budget 3m --out .crash $(CRASH)

mutants: setup ## break the code in ninety planted ways and a hundred machine-made ones: each is found (five minutes)
	$(BIN)/python tests/support/mutants.py $(MUTANTS)

mutation-score: setup ## all planted bugs before the crash laboratory, two thousand machine-made mutants; writes the scores (ninety minutes)
	$(BIN)/python tests/support/mutants.py score

audit-demo: setup ## damage three stores, and audit them on Spark; writes .audit-demo/report (half a minute)
	@$(BIN)/python tests/support/audit_demo.py .audit-demo

audit-cluster: java ## audit the same stores in one process, on Spark, on a cluster that loses an executor, and on Spark Connect: the same findings (three minutes)
	PYTHONPATH=tests/support $(BIN)/python tests/support/audit_cluster.py

audit-kills: setup ## kill a writer five hundred times, and audit what it leaves (three minutes)
	PYTHONPATH=tests/support $(BIN)/python tests/support/killed_stores.py $(KILLS)

interop: setup ## prove with the real Apache BookKeeper that it reads our files, and that we read its files (three minutes; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/interop.py $(INTEROP)

interop-client: setup ## our client and the unmodified Java client share ledgers, on bookies of both kinds, and while these are disturbed (nine minutes; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/clients.py $(CLIENTS)

client-histories: setup ## two thousand random histories of both clients, with kills, pauses and take-overs (ten minutes; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/histories.py $(HISTORIES)

cluster-chaos: setup ## five minutes of faults on a cluster of our bookies, then read every copy of every entry (seven minutes; Maven, and root to fill disks)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/chaos.py $(CHAOS)

interop-zookeeper: setup ## play seeded histories on a real ZooKeeper and on our server: the same answers (a minute; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/zookeeper.py $(HISTORIES)

interop-metadata: setup ## BookKeeper's shell and our commands keep the same metadata, on ZooKeeper and on our server (three minutes; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/metadata.py

bench-listing: setup ## time the list of a hundred thousand ledgers of a cluster, on ZooKeeper and on our server (two minutes; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/metadata.py listing

interop-bookie: setup ## have the unmodified Java client use our bookies and real ones, and kill ours under load (six minutes; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/bookies.py $(BOOKIES)

interop-autorecovery: setup ## have BookKeeper's auto-recovery and ours repair bookies of both kinds, alone and together, and ours repair damage in place (four minutes; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/autorecovery.py $(AUTORECOVERY)

interop-audit: setup ## audit real bookies while they run and afterwards, one of which then loses an entry log (a minute; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/audited_bookies.py

interop-power: setup ## cut the power of bookies and of the metadata server while the Java client writes (three minutes; Maven, and root)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/power_cuts.py $(POWER)

pulsar: setup ## have a Pulsar broker keep its topics on our bookies, and kill bookies and the broker (three minutes; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/pulsar.py $(PULSAR)

pulsar-topics: setup ## have a Pulsar broker and our topics read, write, acknowledge and trim the same topics (five minutes; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/pulsar_topics.py $(PULSAR_TOPICS)

topic-owners: setup ## take a topic over two hundred times from a process that produces, is killed or is paused (ten minutes)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/topic_owners.py $(TOPIC_OWNERS)

bookkeeper-tests: setup ## run BookKeeper's own tests of its client on our bookies, and compare with the list (half an hour; Maven)
	PYTHONPATH=tests/support $(BIN)/python tests/interop/client_tests.py $(BOOKKEEPER_TESTS)

# What takes longer than a run of CI may. CI runs the same targets with less, or a quicker one in their place.
proof: ## prove what CI has no time for (five hours; Maven, and root for real power cuts)
	$(MAKE) test-3.12         # the fast tests on the Python between those that CI tries
	$(MAKE) test-3.13         # the rows of tables on the newest Python; CI runs one of each
	$(MAKE) test-slow         # all of the longest tests; CI runs a third
	$(MAKE) crash             # the crash laboratory at its full budget
	$(MAKE) crash-sim         # all simulated crashes; CI runs a part
	$(MAKE) crash-sim CRASH_SIM="compactions 2200" # ten thousand indexes rebuilt after moves and removals
	$(MAKE) cluster-sim CLUSTER_SIM="--schedules 1000000 --first 100000" # the protocol of several bookies
	$(MAKE) cluster-sim CLUSTER_SIM="--kind autorecovery --schedules 50000 --first 100000" # its repair
	$(MAKE) cluster-sim CLUSTER_SIM="--kind topics --schedules 200000 --first 20000" # owners of topics
	$(MAKE) cluster-worlds CLUSTER_WORLDS="--worlds larger" # every order of their messages, in larger worlds
	$(MAKE) cluster-stores    # the same on real stores with power cuts
	$(MAKE) mutation-score    # two thousand machine-made mutants, and all planted bugs before the laboratory
	$(MAKE) audit-kills       # no false finding after kills at random moments
	$(MAKE) interop           # the real BookKeeper reads our files, and we its
	$(MAKE) interop-zookeeper HISTORIES=10000 # histories on a real ZooKeeper
	PYTHONPATH=tests/support $(BIN)/python tests/support/zookeeper_cuts.py 20000 # connections to our server that are cut
	$(MAKE) interop-metadata  # BookKeeper's shell and our commands
	$(MAKE) interop-client    # our client and the Java client on the same ledgers
	$(MAKE) client-histories  # two thousand random histories of both clients
	$(MAKE) cluster-chaos     # five minutes of faults, then every copy of every entry
	$(MAKE) interop-autorecovery # BookKeeper's auto-recovery and ours on the same clusters
	$(MAKE) interop-audit     # audits of real bookies, with their index in RocksDB
	$(MAKE) interop-bookie    # the Java client, and kills under load
	$(MAKE) interop-power     # power cuts of bookies that the Java client writes to
	$(MAKE) pulsar            # a Pulsar broker on our bookies
	$(MAKE) pulsar-topics     # a Pulsar broker and our topics on the same ledgers
	$(MAKE) topic-owners      # owners of a topic that take over from each other
	$(MAKE) bookkeeper-tests  # BookKeeper's own tests of its client

lint: setup ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## check types, strictly
	$(BIN)/mypy

architecture: setup ## check which module imports which, and that each dangerous thing has one owner
	$(BIN)/pytest -q tests/test_architecture.py

check: lint types test ## everything that must hold before a change is shared

bench: setup ## the store against LevelDB, RocksDB, SQLite, LMDB and the raw limit; writes .bench/bench.html (twenty minutes)
	$(BIN)/python bench/store.py --json .bench/bench.json --html .bench/bench.html $(BENCH)

bench-quick: setup ## the same in short, for a first look; writes nothing (three minutes)
	$(BIN)/python bench/store.py --quick $(BENCH)

bench-syncs: setup ## count the syncs of each store in the bench: one for each acknowledged add or batch
	$(BIN)/python bench/store.py --check-syncs

bench-where: setup ## where the time of an add goes, and what the slowest adds wait for (two minutes)
	$(BIN)/python bench/time_breakdown.py $(BENCH)

bench-functions: setup ## time the hot functions
	$(BIN)/pytest -q bench --benchmark-enable --benchmark-only --benchmark-columns=median,stddev,ops

bench-audit: setup ## the audit's kernel, which reads and verifies entry logs, against C and a loop in Python (a minute)
	$(BIN)/python bench/audit_kernel.py $(BENCH)

bench-scale: setup ## measure that waiting readers, deletes, deleted and absent ledgers do not slow the store (four minutes)
	$(BIN)/python bench/scale.py --json .bench/scale.json $(BENCH)

bench-space: setup ## measure what space reclamation gives back, and what it costs the adds beside it (fifteen minutes, 12 GB)
	$(BIN)/python bench/space.py --json .bench/space.json $(BENCH)

bench-cluster: setup ## the metadata server beside a real ZooKeeper, bookies and clients beside BookKeeper's (twenty minutes; Maven)
	PYTHONPATH=tests/support:tests/interop $(BIN)/python bench/cluster.py --json .bench/cluster.json $(BENCH)
	PYTHONPATH=tests/support:tests/interop $(BIN)/python bench/bookie_speed.py --json .bench/bookies.json $(BENCH)
	PYTHONPATH=tests/support:tests/interop $(BIN)/python bench/client_speed.py --json .bench/clients.json $(BENCH)
	PYTHONPATH=tests/support:tests/interop $(BIN)/python bench/topic_speed.py --json .bench/topics.json $(BENCH)

bench-autorecovery: setup ## measure the time from the kill of a bookie until all copies are there again, beside BookKeeper's auto-recovery (fifteen minutes, 4 GB; Maven)
	PYTHONPATH=tests/support:tests/interop $(BIN)/python bench/autorecovery_speed.py --json .bench/autorecovery.json $(BENCH)

bench-versus: setup ## compare another revision with this one, row by row and in turns: make bench-versus BASE=v0.1 (forty minutes)
	$(BIN)/python bench/compare_revisions.py $(BASE) --json .bench/versus.json $(BENCH)

bench-startup: setup ## time `import storage` and `ledgerstore --help` against bare Python
	$(BIN)/python bench/startup.py

# What can differ between a checkout and what is installed of it: entry points, files beside the code, what is
# shipped to Spark's workers, and every import. All the rest has been tested before.
OF_THE_PACKAGE := tests/test_store.py tests/test_startup.py tests/docs/test_readme.py tests/recovery/shell \
	tests/recovery/report tests/recovery/crashlab/record/test_recorder.py tests/recovery/crashlab/test_plugin.py \
	tests/recovery/audit/report tests/recovery/audit/spark/test_engine.py

wheel-test: setup ## build the wheel, install it alone, and run the tests that an installation can fail (a minute)
	rm -rf build dist .wheel-test
	$(BIN)/python -m build --quiet --wheel
	$(PYTHON) -m venv .wheel-test
	.wheel-test/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		"$$(echo dist/*.whl)[audit,cluster]" pytest pytest-benchmark pytest-xdist hypothesis trustme
	.wheel-test/bin/python -P -c 'import storage, sys; sys.exit(".wheel-test" not in storage.__file__)'
	.wheel-test/bin/python -P tests/support/import_all.py ledgerstore storage recovery
	.wheel-test/bin/python -P -m pytest -q -n auto --dist loadgroup -m "not slow and not docs and not bench" \
		-p no:cacheprovider $(OF_THE_PACKAGE)

docs: setup ## generate the API reference from the docstrings; writes .docs/index.html
	$(BIN)/python docs/build_reference.py .docs

clean: ## remove everything that was made
	rm -rf .venv .venv-* build dist .wheel-test *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .bench .bench-* .interop .crash .audit-demo .docs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
