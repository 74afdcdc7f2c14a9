"""Real file systems of which another program takes the last byte, while a store is under load."""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

import full_volumes
import pytest
from full_disk_writer import CONFIG, DELETED, FENCED, WRITERS, payload, work
from full_volumes import FullDiskWriter

from recovery import open_store
from recovery.crashlab.run.volume import KINDS, Volume, why_not
from storage.errors import DiskFull

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.store import Store

RESUMED = b"resumed"
BACK_S = 60.0
"""The longest time in which adds must be accepted again; it takes about two seconds."""

pytestmark = pytest.mark.slow(10)


@pytest.fixture(params=KINDS)
def volume(request: pytest.FixtureRequest) -> Iterator[Volume]:
    if reason := why_not(request.param):
        pytest.skip(f"no small {request.param}: {reason}")
    with Volume(request.param) as one:
        yield one


@contextmanager
def writing(directory: Path) -> Iterator[FullDiskWriter]:
    """Fill the disk while a program writes to the store, and return when all its adds are refused."""
    with FullDiskWriter(directory / "store") as writer:
        writer.wait_for("ready")
        writer.wait_for("added", 200)
        full_volumes.fill(directory)
        writer.wait_for("full", len(WRITERS))
        yield writer


def check_all(store: Store, writer: FullDiskWriter) -> None:
    for ledger_id, last_id in writer.last_ids.items():
        if ledger_id in writer.answers["deleted"]:
            assert ledger_id not in store.ledgers()
            continue
        found = {entry.entry_id: entry.payload for entry in store.ledger(ledger_id).entries()}
        assert set(range(last_id + 1)) <= set(found), f"ledger {ledger_id}"
        assert all(data in (payload(ledger_id, entry_id), RESUMED) for entry_id, data in found.items())
    assert all(store.ledger(one).is_fenced for one in writer.answers["fenced"])
    assert all(store.ledger(one).explicit_lac == 0 for one in writer.answers["confirmed"])


def add_when_there_is_space(store: Store) -> None:
    deadline = monotonic() + BACK_S
    while True:
        try:
            store.ledger(1).append(RESUMED)
        except DiskFull:
            assert monotonic() < deadline, store.stats().read_only
        else:
            return


def test_a_running_store_does_all_other_work_and_adds_resume(volume: Volume) -> None:
    root = volume.fresh()
    with writing(root) as writer:
        writer.begin("work")
        writer.wait_for("worked")
        assert (writer.answers["fenced"], writer.answers["deleted"]) == ([FENCED], [DELETED])
        assert writer.answers["collected"][0] > 0
        before = len(writer.answers["added"])
        full_volumes.empty(root)
        writer.wait_for("added", before + 100)
        writer.begin("close")
        writer.wait_for("closed")
    with open_store(root / "store", CONFIG) as store:
        check_all(store, writer)


@pytest.mark.parametrize("end", ["close", "kill", "power cut"])
@pytest.mark.parametrize("when", ["before the work", "after the work"])
def test_a_store_that_ended_on_a_full_disk_is_opened_there_and_does_its_work(
    volume: Volume, end: str, when: str
) -> None:
    root = volume.fresh()
    with writing(root) as writer:
        if when == "after the work":
            writer.begin("work")
            writer.wait_for("worked")
        if end == "close":
            writer.begin("close")
            writer.wait_for("closed")
        elif end == "power cut":
            volume.cut()
            writer.is_cut = True
        writer.kill()
    if end == "power cut":
        volume.crash_and_remount()
    full_volumes.fill(root)
    assert full_volumes.is_full(root)
    with open_store(root / "store", CONFIG) as store:
        check_all(store, writer)
        if when == "before the work" and end != "close":
            work(store)
            store.collect()
            writer.answers["deleted"].append(DELETED)
        full_volumes.empty(root)
        add_when_there_is_space(store)
    with open_store(root / "store", CONFIG) as store:
        check_all(store, writer)
        assert store.ledger(1).read(store.ledger(1).last_entry_id or 0).payload == RESUMED
