"""The rules of the layout, executable: which folder imports which, and who alone owns what is dangerous."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

FACES = "the faces"
"""The modules directly in `storage/` that no other line names: the public classes."""

CONFIGURATION = {"config", "bookkeeper_conf", "daily_window", "_version"}

STEPS: tuple[frozenset[str], ...] = tuple(
    map(
        frozenset,
        (
            {"errors"},
            {"entry"},
            {"configuration"},
            {"disk", "runtime"},
            {"memtable", "index", "journal", "entrylog", "capacity"},
            {"ledgers"},
            {"commit", "read"},
            {"checkpoint"},
            {"gc"},
            {FACES},
            {"aio"},
            {"cluster"},
        ),
    )
)
"""The folders of `storage/` from below. A folder imports itself and lower steps, none of its own step."""

CLUSTER: dict[str, set[str]] = {
    "errors": set(),
    "tls": set(),
    "wire": {"errors"},
    "metadata": {"errors", "wire"},
    "zookeeper": {"errors", "tls", "wire", "metadata"},
    "bookie": {"errors", "tls", "wire", "metadata"},
    "client": {"errors", "tls", "wire", "metadata", "zookeeper"},
    "topics": {"errors", "wire", "metadata", "client"},
}
"""By folder of `storage/cluster/`: the other folders that it imports. The parts that decide are pure, and
get sockets, clocks and random numbers from the drivers."""

HANDED_OUT = {
    "storage/store.py": "storage.cluster.topics",
    "storage/aio/store.py": "storage.cluster.topics",
    "storage/cluster/client/blocking.py": "storage.cluster.topics",
    "storage/cluster/client/cluster.py": "storage.cluster.topics",
}
"""By face: the folder of the objects that one of its methods hands out, and that are built upon the face.
The method loads the folder, so that a program which does not call it does not."""

CLUSTER_DRIVERS = {
    "storage/cluster/zookeeper/client.py",
    "storage/cluster/zookeeper/connection.py",
    "storage/cluster/zookeeper/kazoo_connection.py",
    "storage/cluster/zookeeper/node_watch.py",
    "storage/cluster/zookeeper/server.py",
    "storage/cluster/zookeeper/log.py",
    "storage/cluster/bookie/served_connection.py",
    "storage/cluster/bookie/server.py",
    "storage/cluster/bookie/http.py",
    "storage/cluster/bookie/membership.py",
    "storage/cluster/client/async_reader.py",
    "storage/cluster/client/async_writer.py",
    "storage/cluster/client/cluster.py",
    "storage/cluster/client/connections.py",
    "storage/cluster/client/driver.py",
    "storage/cluster/client/loop_thread.py",
    "storage/cluster/client/opening.py",
    "storage/cluster/client/reads_ahead.py",
    "storage/cluster/tls.py",
    "storage/cluster/topics/administration.py",
    "storage/cluster/topics/blocking.py",
    "storage/cluster/topics/subscription.py",
    "storage/cluster/topics/cluster_ledgers.py",
    "storage/cluster/topics/embedded.py",
    "storage/cluster/topics/embedded_ledgers.py",
    "storage/cluster/topics/embedded_nodes.py",
    "storage/cluster/topics/ledgers_port.py",
    "storage/cluster/topics/owner.py",
    "storage/cluster/topics/partitioned.py",
    "storage/cluster/topics/producer.py",
    "storage/cluster/topics/sequences.py",
    "storage/cluster/topics/topic.py",
}

AUTORECOVERY_DRIVERS = {
    "recovery/autorecovery/auditor.py",
    "recovery/autorecovery/audits.py",
    "recovery/autorecovery/decommission.py",
    "recovery/autorecovery/drive.py",
    "recovery/autorecovery/service.py",
    "recovery/autorecovery/worker.py",
}

RECOVERY: dict[str, set[str]] = {
    "directory": set(),
    "explain": set(),
    "report": set(),
    "replay": {"directory"},
    "rebuild": {"directory", "replay"},
    "bookkeeper": {"directory", "replay", "rebuild"},
    "opening": {"directory", "replay", "rebuild", "bookkeeper"},
    "view": {"directory", "replay", "rebuild", "bookkeeper", "opening"},
    "handover": {"directory", "replay", "opening"},
    "audit": {"bookkeeper", "directory", "replay", "rebuild", "opening", "proving", "report"},
    "autorecovery": set(),
    "clusterlab": {"autorecovery", "report"},
    "crashlab": {"report"},
    "demo": {"opening"},
    "local_cluster": set(),
    "proving": {"crashlab", "directory", "explain", "opening", "replay"},
    "shell": {
        "audit",
        "autorecovery",
        "bookkeeper",
        "clusterlab",
        "crashlab",
        "demo",
        "directory",
        "explain",
        "handover",
        "local_cluster",
        "opening",
        "proving",
        "report",
        "view",
    },
}
"""By folder of `recovery/`: the other folders that it imports."""

CRASHLAB_STEPS = ("model", "record", "judge", "run", "layers", "report", "lab")
"""The folders of `recovery/crashlab/` from below, and its face. Each imports itself and those before it."""

AUDIT: dict[str, set[str]] = {
    "findings": set(),
    "engines": set(),
    "model": {"findings", "engines"},
    "digests": {"model"},
    "scan": {"model", "digests", "engines"},
    "checks": {"model", "findings", "engines"},
    "snapshot": {"model", "digests", "findings", "scan"},
    "cache": {"model", "digests", "engines", "scan", "snapshot"},
    "history": {"model", "findings", "pipeline"},
    "report": {"model", "findings", "history"},
    "spark": {"model", "digests", "engines", "scan", "snapshot"},
    "pipeline": {"model", "digests", "engines", "findings", "scan", "checks", "snapshot", "cache"},
    "self_test": {"digests", "engines", "findings", "pipeline"},
}
"""By folder of `recovery/audit/`: the other folders that it imports. Scans do not import the checks."""

FILES = {"os", "io", "pathlib", "shutil", "tempfile", "mmap"}
NAMES_OF_FILES = {"storage.disk", "storage.disk.filenames"}
"""The part of `storage.disk` that the checks may import: functions that make file names from ids."""

OWNERS = {
    "fcntl": {"storage/disk/posix.py"},
    "os.fsync": {"storage/disk/posix.py"},
    "os.fdatasync": {"storage/disk/posix.py"},
    "os.replace": {"storage/disk/posix.py"},
    "os.rename": {"storage/disk/posix.py"},
    "os.kill": {"recovery/local_cluster/processes.py", "recovery/crashlab/run/runner.py"},
    "os.posix_spawn": {"recovery/local_cluster/processes.py"},
    "numpy": {
        "recovery/audit/",
        "storage/entry/verify_numpy.py",
        "storage/entry/headers_numpy.py",
        "storage/entry/batch_numpy.py",
        "storage/index/log_counts_numpy.py",
        "storage/gc/log_walk_numpy.py",
    },
    "click": {"recovery/shell/"},
    "pytest": {"ledgerstore/pytest_plugin.py"},
    "rich": {"recovery/shell/"},
    "jinja2": {"recovery/report/render.py"},
    "markupsafe": {"recovery/report/render.py"},
    "threading": {
        "storage/cluster/client/loop_thread.py",
        "storage/commit/queue.py",
        "storage/ledgers/waiters.py",
        "storage/runtime/worker.py",
    },
    "asyncio": {
        "storage/aio/",
        *CLUSTER_DRIVERS,
        *AUTORECOVERY_DRIVERS,
        "recovery/clusterlab/autorecovery.py",
        "recovery/clusterlab/collection.py",
        "recovery/clusterlab/recovery_hosts.py",
        "recovery/clusterlab/topics/consumers.py",
        "recovery/clusterlab/virtual_loop.py",
        "recovery/clusterlab/znodes.py",
        "recovery/shell/commands/autorecovery_run.py",
        "recovery/shell/commands/autorecovery_status.py",
        "recovery/shell/commands/empty_bookie.py",
        "recovery/shell/commands/metadata_serve.py",
        "recovery/shell/bookie_process.py",
        "recovery/shell/commands/bookie.py",
        "recovery/shell/topics.py",
        "recovery/shell/commands/topic_messages.py",
    },
    "kazoo": {"storage/cluster/zookeeper/kazoo_names.py"},
    "duckdb": {"recovery/audit/engines/sql.py"},
    "lmdb": {"storage/index/lmdb/environment.py"},
    "mmap": {"storage/disk/mapped.py"},
    "prometheus_client": {"storage/prometheus.py", "recovery/shell/listing/bookies.py"},
    "pyspark": {"recovery/audit/spark/"},
    "rocksdict": {"recovery/bookkeeper/rocksdb_index.py"},
}
NAMED_ONCE = ("storage", "recovery", "bench", "ledgerstore", "tests/support")
"""The folders in which no two classes have one name. A leading underscore makes no other name."""

IMPURE = {"os", "io", "pathlib", "threading", "lmdb", "time", "random", "socket", "subprocess"}
NONDETERMINISTIC = {"asyncio", "datetime", "secrets", "selectors", "ssl", "uuid"}
"""Modules that the deciding parts of the cluster do not import, so that a simulator can repeat each run."""
RENAMERS = {
    "storage/disk/replace.py",
    "storage/index/lmdb/directory.py",  # puts a damaged index aside, which is a directory
    "recovery/audit/cache/part_cache.py",  # syncs nothing, because a lost part is only read again
    "recovery/crashlab/",
    "recovery/proving/",
}
"""The modules that rename files through the ports."""

HEAVY = {
    "numpy",
    "duckdb",
    "pyarrow",
    "pyspark",
    "click",
    "rich",
    "jinja2",
    "asyncio",
    "lmdb",
    "msgpack",
    "crc32c",
    "importlib.metadata",
    "kazoo",
    "prometheus_client",
    "storage.cluster",
}


_CLASS_LINE = re.compile(r"^( *class (\w+))", re.MULTILINE)


def sources(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def words(path: Path) -> tuple[set[str], set[str]]:
    """The modules that the file imports, also for the type checker only, and each `module.name` it uses."""
    imported, used = set(), set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used.add(f"{node.value.id}.{node.attr}")
    return imported, used


def imports(path: Path) -> set[str]:
    return words(path)[0]


def attributes(path: Path) -> set[str]:
    return words(path)[1]


def folder_of(module: str) -> str:
    """The folder of a dotted module of `storage` or `recovery`; the module itself if it is in none."""
    package, _, rest = module.partition(".")
    first = rest.partition(".")[0]
    if package == "recovery" or any(first in step for step in STEPS):
        return first
    return "configuration" if first in CONFIGURATION else FACES


def step_of(folder: str) -> int:
    return next(number for number, step in enumerate(STEPS) if folder in step)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def is_a_module(name: str) -> bool:
    """Return whether the dotted name is a module or a package, and not a name in one."""
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


@pytest.fixture(scope="module", autouse=True)
def _parsed() -> None:
    """Parse all sources before the first test, because that takes a second."""
    for path in sources("storage", "recovery", "ledgerstore"):
        words(path)


def top_level(path: Path) -> set[str]:
    """Return the packages of the modules that the file imports."""
    return {imported.partition(".")[0] for imported in imports(path)}


def handed_out(path: Path, imported: str) -> bool:
    """Return whether a method of the file hands out what is imported."""
    folder = HANDED_OUT.get(name_of(path))
    return folder is not None and imported.startswith(f"{folder}.")


def forbidden_imports(path: Path, base: str, rules: dict[str, set[str]]) -> list[str]:
    """Return the imports below `base` that go to a folder which the file's own folder may not import."""
    here = path.relative_to(ROOT / base).with_suffix("").parts[0]
    if here == "__init__":
        return []  # its names are for programs
    prefix = base.replace("/", ".") + "."
    return [
        f"{name_of(path)} imports {imported}"
        for imported in filter(is_a_module, imports(path))
        if imported.startswith(prefix)
        and not handed_out(path, imported)
        and imported.removeprefix(prefix).partition(".")[0] not in rules[here] | {here}
    ]


def test_a_folder_of_storage_imports_only_lower_steps() -> None:
    wrong = []
    for path in sources("storage"):
        here = folder_of(module_of(path))
        for imported in imports(path):
            # A name in `storage` that is no module is one of the faces.
            if handed_out(path, imported):
                continue
            if imported.startswith("storage.") and (is_a_module(imported) or imported.count(".") == 1):
                there = folder_of(imported)
                if there != here and step_of(there) >= step_of(here):
                    wrong.append(f"{name_of(path)} imports {imported}")
        wrong += [name_of(path) for _ in top_level(path) & {"recovery", "ledgerstore"}]
    assert wrong == []


def test_a_folder_of_the_cluster_imports_only_what_is_listed() -> None:
    wrong = [
        one
        for path in sources("storage/cluster")
        for one in forbidden_imports(path, "storage/cluster", CLUSTER)
    ]
    assert wrong == []


def test_what_decides_in_the_cluster_imports_no_clock_no_socket_and_no_random_source() -> None:
    deciding = [path for path in sources("storage/cluster") if name_of(path) not in CLUSTER_DRIVERS]
    assert [name_of(path) for path in deciding if top_level(path) & (IMPURE | NONDETERMINISTIC)] == []


@pytest.mark.parametrize("path", sources("recovery/autorecovery"), ids=name_of)
def test_what_decides_in_auto_recovery_imports_no_clock_no_socket_and_no_random_source(path: Path) -> None:
    seen = {imported.partition(".")[0] for imported in imports(path)}
    assert name_of(path) in AUTORECOVERY_DRIVERS or seen & (IMPURE | NONDETERMINISTIC) == set()


def test_the_client_knows_zookeeper_in_one_module_only() -> None:
    users = [
        name_of(path)
        for path in sources("storage/cluster/client")
        if any(imported.startswith("storage.cluster.zookeeper") for imported in imports(path))
    ]
    assert users == ["storage/cluster/client/connect.py"]


def test_a_folder_of_recovery_imports_only_what_is_listed() -> None:
    wrong = [one for path in sources("recovery") for one in forbidden_imports(path, "recovery", RECOVERY)]
    assert wrong + [name_of(path) for path in sources("recovery") if "ledgerstore" in top_level(path)] == []


def test_the_shell_imports_public_names_only() -> None:
    names = {(name_of(path), name) for path in sources("recovery/shell") for name in imports(path)}
    assert [one for one in names if re.search(r"\._[a-z]", one[1])] == []


def test_the_crash_lab_knows_only_the_ports_and_the_errors_of_storage() -> None:
    imported = {name for path in sources("recovery/crashlab") for name in imports(path)}
    seen = {one for one in imported if one.startswith("storage.") and is_a_module(one)}
    assert seen <= {"storage.disk", "storage.disk.files", "storage.errors"}


def test_a_folder_of_the_crash_lab_imports_only_those_before_it() -> None:
    rules = {step: set(CRASHLAB_STEPS[:number]) for number, step in enumerate(CRASHLAB_STEPS)}
    lab = sources("recovery/crashlab")
    assert [one for path in lab for one in forbidden_imports(path, "recovery/crashlab", rules)] == []


def test_a_folder_of_the_audit_imports_only_what_is_listed() -> None:
    wrong = [
        one for path in sources("recovery/audit") for one in forbidden_imports(path, "recovery/audit", AUDIT)
    ]
    assert wrong == []


def test_the_checks_of_the_audit_see_no_files() -> None:
    checks = sources("recovery/audit/checks")
    assert [name_of(path) for path in checks if top_level(path) & FILES] == []
    imported = {name for path in checks for name in imports(path)}
    disk = {name for name in imported if name.startswith("storage.disk") and is_a_module(name)}
    assert disk <= NAMES_OF_FILES


def test_modules_that_know_bytes_are_pure() -> None:
    formats = [
        path
        for path in sources("storage")
        if path.stem.endswith("format") or path.stem in ("seal", "extents")
    ]
    assert len(formats) > 10
    assert [name_of(path) for path in formats if top_level(path) & IMPURE] == []


def test_the_entry_folder_needs_no_disk() -> None:
    assert [name_of(path) for path in sources("storage/entry") if top_level(path) & IMPURE] == []


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path in sources(*NAMED_ONCE):
        for line, name in _CLASS_LINE.findall(path.read_text()):
            places[name.lstrip("_")].append(f"{name_of(path)}: {line.strip()}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_each_dangerous_module_is_imported_by_its_owner_only() -> None:
    used = {
        name_of(path): imports(path) | attributes(path) | top_level(path)
        for path in sources("storage", "recovery", "ledgerstore")
    }
    for thing, owners in OWNERS.items():
        users = {name for name, words_of_file in used.items() if thing in words_of_file}
        assert [user for user in users if not user.startswith(tuple(owners))] == [], thing


def test_a_file_is_replaced_in_one_module_only() -> None:
    renamers = {
        name_of(path)
        for path in sources("storage", "recovery")
        # Only the few files with the word are parsed, because parsing all of them takes half a second.
        if ".rename" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "rename"
    }
    strangers = [name for name in renamers if not any(name.startswith(one) for one in RENAMERS)]
    assert strangers == []


def test_a_face_loads_what_it_hands_out_only_in_the_method() -> None:
    wrong = []
    for name, folder in HANDED_OUT.items():
        tree = ast.parse((ROOT / name).read_text())
        wrong += [
            name
            for one in tree.body
            if isinstance(one, ast.ImportFrom) and (one.module or "").startswith(folder)
        ]
    assert wrong == []


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}; import sys; print('\\n'.join(sys.modules))"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout.split()
    )


def test_import_storage_loads_nothing_heavy() -> None:
    assert loaded_by("import storage") & HEAVY == set()


def test_a_block_is_split_without_an_earlier_import_of_numpy() -> None:
    assert "numpy" not in loaded_by(
        "import storage.entry.verify, storage.entrylog.scan, storage.journal.scan"
    )
