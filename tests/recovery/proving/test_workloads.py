"""The workloads make the same calls each time, and reach every part of the store."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab_runs import Recorder

from recovery.crashlab.judge.outcome import Answered
from recovery.crashlab.record import preload
from recovery.crashlab.record.history import Ctx
from recovery.crashlab.record.tape import Call, Event
from recovery.proving.file_kinds import IGNORED
from recovery.proving.stepped_workers import SteppedWorkers
from recovery.proving.workloads import WORKLOADS
from storage.disk.posix import PosixWriteFile
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(preload.why_not()), reason=preload.why_not() or "-")


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder


def calls_of(recorder: Recorder, name: str, root: Path) -> list[Event]:
    """Return the calls of a workload with all bytes; of files that contain a process id, only the calls."""
    root.mkdir()
    run = recorder.run(WORKLOADS[name], root)
    assert run.outcome == Answered(None)
    return [_comparable(event) for event in run.events if event.call is not Call.MARK]


def _comparable(event: Event) -> Event:
    is_own = event.path.rpartition("/")[2] in IGNORED
    event = replace(event, inode=0, thread=0)
    return replace(event, data=b"", length=0) if is_own else event


@pytest.fixture(scope="module")
def recorded(recorder: Recorder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Event]]:
    place = tmp_path_factory.mktemp("recorded")
    return {name: calls_of(recorder, name, place / name) for name in WORKLOADS}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_makes_the_same_calls_each_time(
    name: str, recorder: Recorder, recorded: dict[str, list[Event]], tmp_path: Path
) -> None:
    assert calls_of(recorder, name, tmp_path / "again") == recorded[name]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_long_enough_to_matter_and_short_enough_to_try_all_of_it(
    name: str, recorded: dict[str, list[Event]]
) -> None:
    assert 200 < len(recorded[name]) < 1000


def is_about(event: Event, call: Call, *words: str) -> bool:
    told = f"{event.path} -> {event.target}" if event.target else event.path
    return event.call is call and all(word in told for word in words)


@pytest.mark.parametrize(
    ("call", "words", "least"),
    [
        (Call.RENAME, (".txn.draft -> ",), 10),  # journals roll
        (Call.UNLINK, ("journal/", ".txn"), 5),  # and are trimmed
        (Call.RENAME, (".log.draft -> ",), 10),  # entry logs roll
        (Call.RENAME, ("lastMark.draft -> ",), 8),
        (Call.RENAME, ("ledgers.rows.draft -> ",), 4),
        (Call.WRITE, ("ledgers.rows",), 8),  # deletes and changes of ledger metadata
        (Call.RENAME, ("index.draft -> ",), 4),  # the index is made, and made again when it is lost
        (Call.UNLINK, ("index/data.mdb",), 2),
        (Call.RENAME, ("index -> ",), 1),
    ],
)
def test_every_part_of_the_store_is_reached(
    call: Call, words: tuple[str, ...], least: int, recorded: dict[str, list[Event]]
) -> None:
    reached = [one for calls in recorded.values() for one in calls if is_about(one, call, *words)]
    assert len(reached) >= least


def test_adds_are_made_durable_between_the_index_s_commit_and_the_mark(
    recorded: dict[str, list[Event]],
) -> None:
    found = 0
    for calls in recorded.values():
        for at in (at for at, one in enumerate(calls) if is_about(one, Call.RENAME, "lastMark.draft -> ")):
            commit = max(
                (one for one in range(at) if is_about(calls[one], Call.WRITE, "data.mdb")), default=at
            )
            found += any(is_about(one, Call.WRITE, "journal/", ".txn") for one in calls[commit:at])
    assert found >= 6


def test_adds_are_made_durable_between_two_writes_of_an_entry_log(recorded: dict[str, list[Event]]) -> None:
    found = 0
    for calls in recorded.values():
        written = [one for one in calls if one.call in {Call.WRITE, Call.DATASYNC}]
        ends = [one.path.rpartition(".")[2] for one in written]
        found += sum(one == ("log", "txn", "txn") for one in zip(ends, ends[1:], ends[2:], strict=False))
    assert found >= 25


@pytest.mark.parametrize("last", [22, 1 << 30], ids=["once", "for ever"])
def test_a_mark_without_space_in_a_reclamation_does_not_stop_the_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    steps, syncs = count(1), count(1)
    step, sync = SteppedWorkers.step, PosixWriteFile.sync

    def counted_step(workers: SteppedWorkers) -> bool:
        assert next(steps) < 10_000, "no worker has anything to do, and no pause ends"
        return step(workers)

    def sync_without_space(file: PosixWriteFile) -> None:
        # The 22nd mark is that of a removal, in the second opening of the workload.
        if file.name.endswith("lastMark.draft") and 22 <= next(syncs) <= last:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(file)

    monkeypatch.setattr(SteppedWorkers, "step", counted_step)
    monkeypatch.setattr(PosixWriteFile, "sync", sync_without_space)
    with Path(os.devnull).open("wb") as marks, suppress(StoreError):
        WORKLOADS["compaction"](tmp_path, Ctx(marks.fileno()))
    assert next(syncs) > 22
