"""What the store is put through: the same calls each time, and every part of the store is reached."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from syscalls import record, why_not

from recovery.proving.workloads import WORKLOADS

if TYPE_CHECKING:
    from syscalls import Call

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")

_PROGRAM = """
import os, sys
from pathlib import Path
from recovery.crashlab.history import Ctx
from recovery.proving.workloads import WORKLOADS
WORKLOADS[sys.argv[1]](Path(sys.argv[2]), Ctx(os.open(os.devnull, os.O_WRONLY)))
"""


def calls_of(name: str, root: Path) -> list[Call]:
    root.mkdir()
    return record([sys.executable, "-c", _PROGRAM, name, str(root)], root, {"PYTHONPATH": str(Path.cwd())})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Call]]:
    place = tmp_path_factory.mktemp("recorded")
    return {name: calls_of(name, place / name) for name in WORKLOADS}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_makes_the_same_calls_each_time(
    name: str, recorded: dict[str, list[Call]], tmp_path: Path
) -> None:
    assert calls_of(name, tmp_path / "again") == recorded[name]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_long_enough_to_matter_and_short_enough_to_try_all_of_it(
    name: str, recorded: dict[str, list[Call]]
) -> None:
    assert 200 < len(recorded[name]) < 1000


def is_about(call: Call, verb: str, *words: str) -> bool:
    return call.name.startswith(verb) and all(word in call.path for word in words)


@pytest.mark.parametrize(
    ("verb", "words", "least"),
    [
        ("rename", (".txn.draft -> ",), 10),  # journals roll
        ("unlink", ("journal/", ".txn"), 5),  # and are trimmed
        ("rename", (".log.draft -> ",), 10),  # entry logs roll
        ("rename", ("lastMark.draft -> ",), 8),
        ("rename", ("ledgers.rows.draft -> ",), 4),
        ("pwrite", ("ledgers.rows",), 8),  # deletes, and what was said of ledgers
        ("rename", ("index.draft -> ",), 4),  # made, and made again when it is lost
        ("unlink", ("index/data.mdb",), 2),
        ("rename", ("index -> ",), 1),
    ],
)
def test_every_part_of_the_store_is_reached(
    verb: str, words: tuple[str, ...], least: int, recorded: dict[str, list[Call]]
) -> None:
    reached = [call for calls in recorded.values() for call in calls if is_about(call, verb, *words)]
    assert len(reached) >= least


def test_adds_are_made_durable_between_the_index_s_commit_and_the_mark(
    recorded: dict[str, list[Call]],
) -> None:
    found = 0
    for calls in recorded.values():
        for at in (at for at, call in enumerate(calls) if is_about(call, "rename", "lastMark.draft -> ")):
            commit = max((one for one in range(at) if is_about(calls[one], "pwrite", "data.mdb")), default=at)
            found += any(is_about(call, "pwrite", "journal/", ".txn") for call in calls[commit:at])
    assert found >= 6


def test_adds_are_made_durable_between_two_writes_of_an_entry_log(recorded: dict[str, list[Call]]) -> None:
    found = 0
    for calls in recorded.values():
        written = [call for call in calls if call.name.startswith(("pwrite", "fdatasync"))]
        ends = [call.path.rpartition(".")[2] for call in written]
        found += sum(one == ("log", "txn", "txn") for one in zip(ends, ends[1:], ends[2:], strict=False))
    assert found >= 25
