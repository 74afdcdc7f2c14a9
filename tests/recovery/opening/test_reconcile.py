"""An opening brings mark, index, lineage and ledger metadata into agreement, whichever of them is older."""

from __future__ import annotations

import errno
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from entry_log_builder import Log
from file_index import FileIndex
from simulated_directories import STORE_ID, SimulatedDirectories, entries, ids

from recovery.crashlab import LoseAll, Refused, Verb, When
from recovery.directory.orphans import has_foreign_logs, remove_orphans
from recovery.opening.rebuild_index import rebuild_index
from recovery.opening.reconcile import reconcile
from storage.checkpoint import mark_format as mark_codec
from storage.disk import filenames
from storage.entry.ledger_record import LedgerRecord, Tombstone
from storage.entry.position import JournalPosition, LogPosition
from storage.entrylog import lineage
from storage.entrylog.lineage import NoLineage
from storage.entrylog.lineage_format import Lineage
from storage.ledgers.metadata import plain
from storage.ledgers.metadata_log import MetadataLog, scan_directory
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.opening.reconcile import Reconciled


def site_of(count: int) -> SimulatedDirectories:
    """A store with so many logs, each with one entry of ledger 1 that has the number of the log."""
    site = SimulatedDirectories()
    site.put_cookies()
    for number in range(count):
        site.new_run()
        site.checkpoint(*entries(1, [number]))
    return site


def store(site: SimulatedDirectories, *rows: LedgerRecord) -> SimulatedDirectories:
    """The same, with an index that is made from the logs and the rows, and the mark."""
    site.rebuilt(*rows).index.close()
    put_mark(site)
    return site


def put_mark(site: SimulatedDirectories) -> None:
    site.put_mark(mark_codec.encode(site.mark))


def opened(site: SimulatedDirectories) -> Reconciled:
    with ExitStack() as held:
        found = reconcile(site.layout, site.place, STORE_ID, held)
        held.pop_all()
        return found


def lineage_of(site: SimulatedDirectories) -> Lineage | NoLineage:
    found = lineage.load(site.ledgers, STORE_ID)
    assert isinstance(found, Lineage | NoLineage)
    return found


def lineage_of_the_index(site: SimulatedDirectories) -> Lineage:
    kept = tuple(LogPosition(one, end) for one, end in site.state.log_ends.items())
    return Lineage(site.state.generation, kept, site.state.gone)


# ── the lineage ──────────────────────────────────────────────────────────────────────────────────────────

WRONG: dict[str, Callable[[SimulatedDirectories], None]] = {
    "damaged": lambda site: site.put(site.ledgers, filenames.LINEAGE, b"LSLN?"),
    "missing": lambda site: site.ledgers.remove(filenames.LINEAGE),
    "of a later generation": lambda site: site.put_lineage(generation=99),
    "with a log that the index does not have": lambda site: site.put_lineage(LogPosition(1, 4153)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_beside_a_good_index_a_wrong_lineage_is_written_again_and_reported(wrong: str) -> None:
    site = site_of(4)
    site.remove_logs(1)
    store(site)
    WRONG[wrong](site)
    found = opened(site)
    assert found.how is IndexFound.GOOD
    [finding] = found.findings
    assert finding.startswith("ELG-008 lineage@")
    assert finding.endswith("; written again from the index")
    assert lineage_of(site) == lineage_of_the_index(site)
    # So that an index that is lost now is made again whole.
    rebuilt = site.rebuilt()
    assert (rebuilt.index.state(), rebuilt.findings) == (site.state, ())
    assert opened(site).findings == ()


def test_the_lineage_is_written_again_after_the_mark_of_an_index_that_is_ahead() -> None:
    site = site_of(4)
    site.remove_logs(1)
    store(site)
    WRONG["damaged"](site)
    known = site.state
    site.state = replace(known, generation=known.generation - 1)
    put_mark(site)
    site.state = known
    assert opened(site).how is IndexFound.AHEAD
    assert site.rebuilt().index.state() == known


def test_an_index_that_is_lost_within_such_an_opening_is_rebuilt() -> None:
    site = site_of(4)
    site.remove_logs(1)
    store(site)
    WRONG["damaged"](site)
    known = site.state
    site.state = replace(known, generation=known.generation - 1)
    put_mark(site)
    disks = []
    site.disk.watch(lambda _: disks.append(site.disk.copy()))
    assert opened(site).how is IndexFound.AHEAD
    for disk in disks:
        disk.kill()
        at = SimulatedDirectories(disk)
        rebuilt = rebuild_index(at.layout, at.place)
        assert rebuilt.index.state().log_ends.keys() == known.log_ends.keys()
        rebuilt.index.close()


def test_a_right_lineage_is_not_written() -> None:
    site = site_of(4)
    site.remove_logs(1)
    store(site)
    before = len(site.disk.trace)
    assert opened(site).findings == ()
    written = [one for one in site.disk.trace[before:] if one.path.endswith("lineage.draft")]
    assert written == []


def test_an_interrupted_removal_leaves_a_lineage_that_is_not_wrong() -> None:
    site = store(site_of(4))
    known = site.state
    site.commit_removal(1)
    before = lineage_of(site)
    site.state = known  # the crash came before the index
    assert opened(site).findings == ()
    assert lineage_of(site) == before


def test_a_store_that_has_removed_no_log_needs_no_lineage() -> None:
    site = store(site_of(4))
    assert opened(site).findings == ()
    assert isinstance(lineage_of(site), NoLineage)


def test_a_full_disk_does_not_refuse_an_opening_because_of_the_lineage() -> None:
    site = site_of(4)
    site.remove_logs(1)
    store(site)
    WRONG["damaged"](site)
    site.disk.plant(Refused(When(verb=Verb.WRITE, name="lineage.draft"), errno.ENOSPC))
    [finding] = opened(site).findings
    assert finding.endswith("; no space to write it again")
    [finding] = opened(site).findings
    assert finding.endswith("; written again from the index")


def test_an_index_that_is_rebuilt_on_request_is_whole_beside_a_damaged_lineage() -> None:
    site = site_of(4)
    site.remove_logs(1)
    store(site)
    WRONG["damaged"](site)
    rebuilt = rebuild_index(site.layout, site.place)
    assert rebuilt.index.state() == site.state
    assert [one[:15] for one in rebuilt.findings] == ["ELG-008 lineage"]


# ── logs that are being removed ──────────────────────────────────────────────────────────────────────────


def with_a_bookie_s_log(log_id: int) -> SimulatedDirectories:
    site = SimulatedDirectories()
    site.put_cookies()
    for one in range(log_id + 1):
        site.put_log(one, Log().add(*entries(7, [one])))
    site.put_mark()
    site.state = site.imported().index.state()
    site.new_run()
    site.checkpoint(*entries(1, [0]))
    return site


@pytest.mark.parametrize("is_lost", [False, True], ids=["index intact", "index lost"])
def test_a_log_whose_removal_was_interrupted_is_removed(is_lost: bool) -> None:
    for site, name in ((site_of(3), "1.log"), (with_a_bookie_s_log(1), "0.log")):
        site.commit_removal(int(name[0]))
        store(site)
        if is_lost:
            site.ledgers.remove("index")
        found = opened(site)
        assert found.how is (IndexFound.REBUILT if is_lost else IndexFound.GOOD)
        state = found.index.state()
        assert not has_foreign_logs(site.ledgers, state)
        assert name in remove_orphans(site.layout, state, STORE_ID).removed
        assert name not in site.ledgers.names()
        assert {filenames.entry_log(one) for one in state.log_ends} <= {*site.ledgers.names()}


def test_a_removed_log_cannot_come_back_after_the_opening() -> None:
    site = with_a_bookie_s_log(1)
    site.commit_removal(0)
    store(site)
    remove_orphans(site.layout, opened(site).index.state(), STORE_ID)
    site.disk.power_cut(LoseAll())
    assert "0.log" not in site.ledgers.names()


def test_a_bookie_s_log_that_the_index_does_not_know_is_still_a_run_of_a_bookie() -> None:
    site = with_a_bookie_s_log(1)
    site.remove_logs(0)
    store(site)
    site.put_log(9, Log().add(*entries(7, [9])))
    assert has_foreign_logs(site.ledgers, site.state)
    assert opened(site).how is IndexFound.ADOPTED


# ── tombstones that were purged ──────────────────────────────────────────────────────────────────────────


def deleted(ledger_id: int, log: LogPosition | None) -> LedgerRecord:
    return replace(plain(ledger_id), change=5, tombstone=Tombstone(JournalPosition(1, 4096), log))


def made_again() -> tuple[SimulatedDirectories, LogPosition]:
    """Ledger 1 was deleted and made again, with entries 3 and 4. Return the bound of its tombstone too."""
    site = site_of(2)
    bound = site.checkpoint(*entries(2, [0]))
    for number in (3, 4):
        site.new_run()
        site.checkpoint(*entries(1, [number]))
    return site, bound


def served(found: Reconciled, ledger_id: int) -> list[int]:
    index = found.index
    assert isinstance(index, FileIndex)
    return [entry_id for entry_id, _ in index.locations(ledger_id, 0, 100)]


def test_a_tombstone_that_was_purged_from_the_metadata_log_only_is_written_there_again() -> None:
    site, bound = made_again()
    store(site, deleted(1, bound))
    found = opened(site)
    assert found.rows.rows.get(1) == deleted(1, bound)
    assert served(found, 1) == [3, 4]


def test_a_tombstone_that_only_the_index_has_is_durable_in_the_metadata_log_after_the_opening() -> None:
    site, bound = made_again()
    kept = MetadataLog(site.ledgers, {9: deleted(9, bound)}, 1)
    kept.rewrite()
    kept.close()
    # Mark and index name its group, so that nothing of the file has to be proven.
    site.state = replace(site.state, rows_sequence=kept.sequence)
    site.put_index(deleted(1, bound))
    put_mark(site)
    opened(site).rows.close()
    site.disk.power_cut(LoseAll())
    filed = scan_directory(site.ledgers)
    assert filed is not None
    assert sorted(filed.rows) == [1, 9]


def test_a_tombstone_that_was_purged_from_the_index_only_deletes_no_entry_of_the_ledger_made_again() -> None:
    site, bound = made_again()
    site.put_rows(deleted(1, bound))
    store(site, deleted(1, bound))
    # The index without the tombstone, which the metadata log still has.
    index = site.place.open()
    assert isinstance(index, FileIndex)
    with index.change() as change:
        change.remove_rows([1])
        change.commit(None)
    index.close()
    found = opened(site)
    assert served(found, 1) == [3, 4]
    assert served(found, 2) == [0]


def test_a_tombstone_of_an_interrupted_checkpoint_deletes_every_entry_before_its_bound() -> None:
    for log in (None, LogPosition(1, 1 << 20), LogPosition(7, 8192)):
        site = store(site_of(2))
        site.put_rows(deleted(1, log))
        assert served(opened(site), 1) == []


def test_a_bound_in_a_removed_log_keeps_the_later_entries() -> None:
    site, bound = made_again()
    site.remove_logs(bound.log_id)
    site.put_rows(deleted(1, bound))
    store(site)
    index = site.place.open()
    assert isinstance(index, FileIndex)
    assert ids(site.placed(index), 1) == [0, 3, 4]
    index.close()
    assert served(opened(site), 1) == [3, 4]
