"""What was not deleted of a real bookie's directory stays when space is reclaimed, also without the index."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import fixtures
import pytest

from recovery import open_store
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from recovery.directory.layout import Layout
from recovery.handover.handover import hand_over
from recovery.opening.rebuild_index import rebuild_index
from recovery.view.open_view import open_view
from storage.config import StoreConfig
from storage.disk.posix import PosixDirectory
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from pathlib import Path

    from storage.store import Store

QUIET = StoreConfig(
    checkpoint_interval_s=None,
    idle_seal_s=None,
    journal_size=8 << 20,
    index_size_max=64 << 20,
    journal_max_backups=0,
    # So that each log is compacted that has anything dead, without a pause.
    compaction_minor=0.99,
    compaction_major=0.99,
    compaction_rate=None,
    collection_interval_s=None,
)
LEDGERS = "ledgers/current"
OURS = 77_777
"""A ledger that is in no set."""

Content = dict[int, dict[int, str]]
"""For each ledger, the checksum of each entry's payload."""


@pytest.fixture(params=fixtures.SETS)
def taken_over(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """The set, and its directory after it has become a store."""
    name, path = request.param, tmp_path / "store"
    shutil.copytree(fixtures.bookie(name) / "bookie", path)
    layout = Layout(PosixDirectory(path))
    rebuild_index(layout, LmdbIndexDirectory(layout.ledgers, layout.ledgers.path, 1 << 26)).index.close()
    return name, path


def ledgers_of(name: str) -> list[dict[str, Any]]:
    return [one for one in fixtures.manifest(name)["ledgers"] if not one["deleted"]]


def content(store: Store, name: str) -> Content:
    """Read every entry of the set's ledgers, and of ours."""
    passwords = {one["ledger"]: one["password"].encode() for one in ledgers_of(name)}
    found: Content = {}
    for ledger_id in store.ledgers():
        ledger = store.ledger(ledger_id, password=passwords.get(ledger_id, b""))
        ids = [entry_id for part in ledger.entry_ids() for entry_id in part]
        found[ledger_id] = {one: hashlib.sha256(ledger.read(one).payload).hexdigest() for one in ids}
    return found


@pytest.mark.sampled(one_of=3)
def test_after_half_of_the_ledgers_were_deleted_and_collected_the_other_half_is_left(
    taken_over: tuple[str, Path],
) -> None:
    name, path = taken_over
    with open_store(path, QUIET) as store:
        store.ledger(OURS).append(b"ours")
        before = content(store, name)
        deleted = sorted(before.keys() - {OURS})[::2]
        for ledger_id in deleted:
            store.ledger(ledger_id, password=password_of(name, ledger_id)).delete()
        store.checkpoint()
        report = store.collect()
        assert report.problems == ()
        expected = {one: entries for one, entries in before.items() if one not in deleted}
        assert content(store, name) == expected
        store.checkpoint()
    logs = {one.name for one in (path / LEDGERS).glob("*.log")}
    assert logs.isdisjoint(f"{one:x}.log" for one in report.removed)
    assert report.removed or not fixtures.entry_logs(name)

    # The index is lost.
    shutil.rmtree(path / LEDGERS / "index")
    with open_store(path, QUIET) as store:
        assert (store.opened.index, store.opened.findings) == (IndexFound.REBUILT, ())
        assert content(store, name) == expected
    assert [one for one in run_audit(AuditRequest((str(path),))).findings if one.is_wrong] == []

    # A bookie's scan of what is handed over finds each entry where it counts last.
    assert hand_over(path, config=QUIET).findings == ()
    with open_view(path) as view:
        assert set(view.ledgers()) == set(expected)
        assert {one: set(view.ids(one)) for one in expected} == {
            one: set(entries) for one, entries in expected.items()
        }


def password_of(name: str, ledger_id: int) -> bytes:
    return fixtures.passwords(name)[ledger_id]


@pytest.mark.sampled(one_of=3)
def test_a_collection_leaves_logs_of_a_bookie_whose_entries_are_all_live(
    taken_over: tuple[str, Path],
) -> None:
    name, path = taken_over
    with open_store(path, replace(QUIET, compaction_minor=0.1, compaction_major=0.1)) as store:
        store.ledger(OURS).append(b"ours")
        store.checkpoint()
        before = content(store, name)
        report = store.collect()
        assert (report.moved_entries, report.problems) == (0, ())
        assert content(store, name) == before
