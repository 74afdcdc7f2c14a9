"""Truncated entries that logs and journals still hold are no findings, and commands show the truncation."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from fault_trials import audited
from file_index import FileIndexPlace
from stepped_store import Site

from recovery import open_store
from recovery.audit.self_test.stores import copy_running
from recovery.directory.layout import Layout
from recovery.view.open_view import ViewReader
from storage.config import StoreConfig
from storage.disk.posix import PosixDirectory
from storage.errors import EntryTruncated
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.lmdb.index import LmdbIndex

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.mark.parametrize("before", [30, 60])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_truncated_entries_in_logs_and_journals_are_no_findings(
    tmp_path: Path, before: int, checkpointed: object
) -> None:
    with open_store(tmp_path) as store:
        store.ledger(1).append_many([b"x" * 100] * 50)
        store.checkpoint()
        store.ledger(1).append_many([b"x" * 100] * 10)
        store.ledger(2).append(b"y")
        store.ledger(1).truncate(before)
        if checkpointed:
            store.checkpoint()
    assert {finding.kind for finding in audited(tmp_path, {})} <= {"LGR-007"}


def _index_of(root: Path) -> LmdbIndex:
    ledgers = Layout(PosixDirectory(root)).ledgers
    index = LmdbIndexDirectory(ledgers, root / "ledgers" / "current").open()
    assert isinstance(index, LmdbIndex)
    return index


def _put_back(root: Path, found: Mapping[int, int]) -> None:
    """Give the index these places of ledger 1 again."""
    with closing(_index_of(root)) as index, index.change() as change:
        change.put(1, list(found), list(found.values()))
        change.commit(None)


@pytest.mark.parametrize("before", [30, 50])
def test_a_place_in_the_index_before_a_truncation_that_the_index_has_is_a_finding(
    tmp_path: Path, before: int
) -> None:
    with open_store(tmp_path) as store:
        store.ledger(1).append_many([b"x" * 100] * 50)
        store.checkpoint()
    with closing(_index_of(tmp_path)) as index:
        places = dict(index.locations(1, 0, before))
    with open_store(tmp_path) as store:
        store.ledger(1).truncate(before)
        store.checkpoint()
    assert not [finding for finding in audited(tmp_path, {}) if finding.is_wrong]
    _put_back(tmp_path, places)
    (wrong,) = [finding for finding in audited(tmp_path, {}) if finding.is_wrong]
    assert (wrong.kind, wrong.ledger_id) == ("IDX-007", 1)
    assert (wrong.first_entry, wrong.last_entry, wrong.count) == (0, before - 1, before)


def test_a_place_before_a_truncation_that_the_index_does_not_have_yet_is_no_finding(tmp_path: Path) -> None:
    with open_store(tmp_path / "live", StoreConfig(idle_seal_s=None)) as store:
        store.ledger(1).append_many([b"x" * 100] * 50)
        store.checkpoint()
        store.ledger(1).truncate(30)
        copy_running(tmp_path / "live", tmp_path / "killed")
    with closing(_index_of(tmp_path / "killed")) as index:
        assert index.count(1) == 50
    assert not [finding for finding in audited(tmp_path / "killed", {}) if finding.is_wrong]


@pytest.mark.parametrize("before", [7, 20])
def test_a_view_beside_the_store_shows_truncations(before: int) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    ledger.append_many([b"x"] * 10)
    site.checkpoint(store)
    ledger.append_many([b"x"] * 10)
    layout = Layout(site.disk.root())
    with ViewReader(layout, FileIndexPlace(layout.ledgers).open).run() as view:
        assert view.ledger(1).entry_ids() == [range(20)]
        ledger.truncate(before)
        for _ in range(3):
            view.refresh()
            seen = view.ledger(1)
            assert (seen.first_entry_id, seen.last_entry_id) == (before, 19)
            assert seen.entry_ids() == ([range(before, 20)] if before < 20 else [])
            assert [entry.entry_id for entry in seen.entries()] == list(range(before, 20))
            assert seen.last_add_confirmed == ledger.last_add_confirmed
            with pytest.raises(EntryTruncated):
                seen.read(before - 1)
            site.checkpoint(store)
        assert view.ledgers() == [1]
