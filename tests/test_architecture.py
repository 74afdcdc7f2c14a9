"""The house's rules, executable: who may import whom, and who alone owns what is dangerous."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

WORDS = {
    "_version",
    "access",
    "bookkeeper_conf",
    "config",
    "entry",
    "errors",
    "filenames",
    "index_state",
    "latch",
    "outcome",
    "patience",
    "position",
    "properties",
    "report",
    "row",
}
PORTS = {"files", "index", "turnstile", "worker"}
ADAPTERS = {
    "forks",
    "gate",
    "lmdb_environment",
    "lmdb_index",
    "lmdb_place",
    "lmdb_leaves",
    "lmdb_walk",
    "mapped_file",
    "page_snapshot",
    "page_sums",
    "posix_files",
}
TOOLS = {"location_cache", "log_ids", "log_shelf", "resync", "window"}
PARTS = {
    "backlog",
    "cookie",
    "entries",
    "entry_logs",
    "entrylog_reader",
    "entrylog_scan",
    "entrylog_writer",
    "journal_groups",
    "journal_proof",
    "journal_reader",
    "journal_records",
    "journal_scan",
    "journal_stretches",
    "journal_writer",
    "journals",
    "lastmark",
    "ledger_rows",
    "ledger_rows_scan",
    "memtable",
    "tail",
}
MOVERS = {
    "adding",
    "alone",
    "checkpoint",
    "chores",
    "commit",
    "entrance",
    "grouping",
    "reading",
    "registry",
    "scanning",
    "warden",
}
DOOR = {"aio", "bookie", "ledger", "parts", "presence", "request", "store"}

# Lower may not see higher. Parts never see each other, except a part's own second half.
MAY_SEE = {
    "words": {"words"},
    "codec": {"words", "codec"},
    "ports": {"words"},
    "adapters": {"words", "ports", "codec", "adapters"},
    "tools": {"words", "codec", "ports", "tools"},
    "parts": {"words", "codec", "ports", "tools"},
    "movers": {"words", "codec", "ports", "tools", "parts"},
    "door": {"words", "codec", "ports", "tools", "parts", "movers", "door"},
}
SECOND_HALVES = {
    ("adding", "alone"),
    ("adding", "commit"),
    ("alone", "commit"),
    ("alone", "entrance"),
    ("alone", "grouping"),
    ("backlog", "entries"),
    ("backlog", "memtable"),
    ("checkpoint", "commit"),
    ("checkpoint", "registry"),
    ("chores", "commit"),
    ("commit", "entrance"),
    ("commit", "grouping"),
    ("commit", "registry"),
    ("entrance", "grouping"),
    ("entry_logs", "entrylog_writer"),
    ("entrylog_scan", "entrylog_reader"),
    ("journal_groups", "journal_reader"),
    ("journal_groups", "journal_stretches"),
    ("journal_proof", "journal_reader"),
    ("journal_records", "journal_reader"),
    ("journal_scan", "journal_reader"),
    ("journal_scan", "journal_proof"),
    ("journal_scan", "journal_groups"),
    ("journal_scan", "journal_stretches"),
    ("journal_stretches", "journal_reader"),
    ("journals", "journal_writer"),
    ("ledger_rows", "ledger_rows_scan"),
    ("memtable", "entries"),
    ("scanning", "reading"),
    ("warden", "commit"),
    ("warden", "grouping"),
    ("warden", "registry"),
}

RECOVERY_MAY_SEE: dict[str, set[str]] = {
    "fields": set(),
    "anatomy": {"fields"},
    "decision": set(),
    "declared": set(),
    "chain": {"decision"},
    "founding": set(),
    "leftovers": {"founding"},
    "replay": {"chain", "decision", "declared"},
    "lineage": {"leftovers"},
    "meter": set(),
    "placing": {"lineage", "meter"},
    "rebuild": {"declared", "lineage", "meter", "placing"},
    "journal_facts": {"meter"},
    "past": {"lineage"},
    "merging": {"journal_facts", "placing"},
    "adoption": {
        "declared",
        "founding",
        "journal_facts",
        "leftovers",
        "lineage",
        "merging",
        "meter",
        "past",
        "placing",
        "rebuild",
    },
    "remaking": {"adoption", "founding", "meter", "past", "placing", "rebuild"},
    "indexing": {"adoption", "founding", "leftovers", "rebuild"},
    "proven": {"chain", "decision", "replay"},
    "replaying": {"journal_facts", "proven", "replay"},
    "torn": {"chain", "decision", "replay"},
    "cleaning": {"declared", "torn"},
    "restating": set(),
    "handover": {"cleaning", "founding", "opening", "replaying", "restating", "torn"},
    "opening": {"founding", "indexing", "leftovers", "replay", "replaying", "torn"},
    "opening_async": {"opening"},
    "memory_index": set(),
    "overlay": set(),
    "view": set(),
    "viewing": {
        "adoption",
        "founding",
        "indexing",
        "leftovers",
        "memory_index",
        "overlay",
        "past",
        "rebuild",
        "remaking",
        "replay",
        "replaying",
        "view",
    },
    "verify": {"chain", "decision", "lineage", "placing"},
    "page": set(),
    "audit": {
        "chain",
        "declared",
        "founding",
        "indexing",
        "leftovers",
        "lineage",
        "opening",
        "page",
        "past",
        "replay",
        "verify",
    },
    "crashlab": {"crashlab", "page"},
    "demo": {"opening"},
    "proving": {"anatomy", "crashlab", "fields", "founding", "indexing", "leftovers", "opening", "replay"},
    "shell": {
        "anatomy",
        "audit",
        "crashlab",
        "demo",
        "fields",
        "founding",
        "handover",
        "page",
        "proving",
        "remaking",
        "shell",
        "verify",
        "view",
        "viewing",
    },
}

OWNERS = {
    "fcntl": {"storage/posix_files.py"},
    "os.fsync": {"storage/posix_files.py"},
    "os.fdatasync": {"storage/posix_files.py"},
    "os.replace": {"storage/posix_files.py"},
    "os.rename": {"storage/posix_files.py"},
    "numpy": {
        "recovery/audit/",
        "recovery/verify/",
        "storage/codec/frames_numpy.py",
        "storage/codec/fronts_numpy.py",
        "storage/codec/passage_numpy.py",
        "storage/codec/proof_numpy.py",
    },
    "click": {"recovery/shell/"},
    "pytest": {"recovery/crashlab/plugin.py"},
    "rich": {"recovery/shell/"},
    "threading": {"storage/turnstile.py", "storage/worker.py"},
    "asyncio": {"storage/aio/"},
    "lmdb": {"storage/lmdb_environment.py"},
    "mmap": {"storage/mapped_file.py"},
    "pyspark": {"recovery/audit/sources.py", "recovery/audit/spark/"},
}
IMPURE = {"os", "io", "pathlib", "threading", "lmdb", "time", "random", "socket", "subprocess"}
HEAVY = {"numpy", "pyspark", "click", "rich", "asyncio", "lmdb", "msgpack", "crc32c", "importlib.metadata"}


def sources(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> set[str]:
    """Every module that the file names in an import, those for the type checker included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def attributes(path: Path) -> set[str]:
    """Every `module.name` that the file uses."""
    return {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return parts[0] if parts else ""


def room(module: str) -> str | None:
    rooms = {
        "words": WORDS,
        "ports": PORTS,
        "adapters": ADAPTERS,
        "tools": TOOLS,
        "parts": PARTS,
        "movers": MOVERS,
        "door": DOOR,
        "codec": {"codec"},
    }
    return next((name for name, modules in rooms.items() if module in modules), None)


def test_every_module_of_storage_has_a_room() -> None:
    homeless = [
        name_of(path)
        for path in sources("storage")
        if module_of(path) != "__init__" and not room(module_of(path))
    ]
    assert homeless == []


@pytest.mark.parametrize("path", sources("storage"), ids=name_of)
def test_storage_sees_only_what_lies_below(path: Path) -> None:
    here = module_of(path)
    if here == "__init__":
        return
    allowed = MAY_SEE[room(here) or ""]
    for imported in imports(path):
        package, _, rest = imported.partition(".")
        target = rest.partition(".")[0]
        assert package != "recovery", imported
        if package != "storage" or not room(target) or target == here:
            continue
        assert room(target) in allowed or (here, target) in SECOND_HALVES, imported


@pytest.mark.parametrize("path", sources("recovery"), ids=name_of)
def test_recovery_s_rooms_see_only_what_they_may(path: Path) -> None:
    here = module_of(path)
    for imported in imports(path):
        package, _, rest = imported.partition(".")
        target = rest.partition(".")[0]
        if package == "recovery" and target and here != "__init__":
            assert target in RECOVERY_MAY_SEE[here] | {here}, imported


@pytest.mark.parametrize("path", sources("recovery/crashlab"), ids=name_of)
def test_the_crash_lab_knows_only_the_ports(path: Path) -> None:
    seen = {imported.split(".")[1] for imported in imports(path) if imported.startswith("storage.")}
    assert seen <= {"files", "errors"}


@pytest.mark.parametrize("path", sources("storage/codec"), ids=name_of)
def test_codecs_are_pure(path: Path) -> None:
    assert {imported.partition(".")[0] for imported in imports(path)} & IMPURE == set()


@pytest.mark.parametrize("thing", OWNERS)
def test_each_dangerous_thing_has_one_owner(thing: str) -> None:
    users = {
        name_of(path)
        for path in sources("storage", "recovery")
        if thing in imports(path) | attributes(path) | {name.partition(".")[0] for name in imports(path)}
    }
    strangers = [user for user in users if not any(user.startswith(owner) for owner in OWNERS[thing])]
    assert strangers == []


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}; import sys; print('\\n'.join(sys.modules))"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout.split()
    )


def test_import_storage_loads_nothing_heavy() -> None:
    assert loaded_by("import storage") & HEAVY == set()


def test_a_block_is_split_without_loading_numpy_before() -> None:
    assert "numpy" not in loaded_by(
        "import storage.codec.frames, storage.entrylog_scan, storage.journal_scan"
    )
