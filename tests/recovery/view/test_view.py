"""A view shows all acknowledged entries also beside a writer, and writes nothing."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import fixtures
import pytest
from file_index import FileIndex, FileIndexPlace
from shell_samples import bookie_journal
from shell_samples import ledger as made_ledger
from shell_samples import records as journal_records
from stepped_store import LEDGERS, SMALL, Site
from watched_views import (
    FollowingIndex,
    Held,
    Watched,
    WatchedReadFile,
    following,
    held_by,
    looking,
    payloads,
)

from recovery import open_store
from recovery.directory.layout import Layout
from recovery.view.open_view import ViewReader, open_view
from storage.commit.pending import confirmed_by
from storage.disk.posix import PosixDirectory
from storage.entry.model import NO_ENTRY, DigestType, Entry
from storage.errors import AlreadyOpen, CorruptionError, NotAStore
from storage.index.port import NoIndex
from storage.ledgers import metadata_log
from storage.ledgers.metadata_log_format import ALIGNMENT
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from recovery.crashlab import SimulatedDisk
    from recovery.view.view import View
    from storage.disk.files import Directory, ReadFile
    from storage.store import Store

BIG = 20 << 10
"""A few entries of this size fill the first journal."""


# ── beside a store that goes on ──────────────────────────────────────────────────────────────────────────


class Writer:
    """A store on a simulated disk, and the entries that it has acknowledged."""

    def __init__(self) -> None:
        self.site = Site(SMALL)
        self.store: Store = self.site.open()
        self.held: Held = {}
        self.ever: dict[int, list[dict[int, bytes]]] = {}
        """For each ledger id the ledgers that had it, in their order."""

    def append(self, ledger_id: int, payload: bytes) -> None:
        entry_id = self.store.ledger(ledger_id).append(payload)
        if ledger_id not in self.held:
            self.held[ledger_id] = {}
            self.ever.setdefault(ledger_id, []).append(self.held[ledger_id])
        self.held[ledger_id][entry_id] = payload

    def delete(self, ledger_id: int) -> None:
        self.site.workers.run()
        self.store.ledger(ledger_id).delete()
        del self.held[ledger_id]

    def checkpoint(self) -> None:
        self.site.checkpoint(self.store)

    def roll(self) -> None:
        """Begin another journal, so that the next checkpoint trims the earlier ones."""
        for number in range(3):
            self.append(1, bytes([number]) * BIG)

    def settled(self) -> Held:
        return {ledger_id: dict(entries) for ledger_id, entries in self.held.items()}


def begun() -> Writer:
    """A store with entries in a checkpoint, and others only in journals, in more than one."""
    writer = Writer()
    for number in range(3):
        for ledger_id in (1, 2, 3):
            writer.append(ledger_id, b"first %d" % number)
    writer.checkpoint()
    writer.roll()
    for number in range(3):
        for ledger_id in (2, 3, 4):
            writer.append(ledger_id, b"then %d" % number)
    return writer


def trimmed(writer: Writer) -> None:
    writer.roll()
    writer.checkpoint()


def trimmed_and_gone_on(writer: Writer) -> None:
    trimmed(writer)
    writer.append(2, b"behind it")
    trimmed(writer)


def deleted(writer: Writer) -> None:
    writer.delete(3)


def deleted_and_made_anew(writer: Writer) -> None:
    writer.delete(3)
    writer.append(3, b"of another ledger")


def deleted_made_anew_and_checkpointed(writer: Writer) -> None:
    deleted_and_made_anew(writer)
    trimmed(writer)


MEDDLING = [
    trimmed,
    trimmed_and_gone_on,
    deleted,
    deleted_and_made_anew,
    deleted_made_anew_and_checkpointed,
]


def looks() -> int:
    count = 0

    def looked() -> None:
        nonlocal count
        count += 1

    looking(begun().site.disk, looked).run()
    return count


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("meddle", MEDDLING, ids=lambda meddle: meddle.__name__)
def test_a_view_misses_nothing_acknowledged_while_the_writer_goes_on(
    meddle: Callable[[Writer], None],
) -> None:
    for moment in range(1, looks() + 1):
        writer = begun()
        before = writer.settled()
        left = [moment]

        def looked(writer: Writer = writer, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                meddle(writer)

        view = looking(writer.site.disk, looked).run()
        _check(held_by(view), before, writer)


def _check(seen: Held, before: Held, writer: Writer) -> None:
    for ledger_id, entries in before.items():
        if ledger_id in writer.held and len(writer.ever[ledger_id]) == 1:
            assert entries.items() <= seen[ledger_id].items(), f"of ledger {ledger_id} something is missed"
    for ledger_id, shown in seen.items():
        if not shown:
            continue
        of_one = [ledger for ledger in writer.ever[ledger_id] if shown.items() <= ledger.items()]
        assert of_one, f"ledger {ledger_id} is made of several"


@pytest.mark.parametrize("meddle", MEDDLING, ids=lambda meddle: meddle.__name__)
def test_a_view_shows_exactly_what_happened_before(meddle: Callable[[Writer], None]) -> None:
    writer = begun()
    meddle(writer)
    assert held_by(looking(writer.site.disk).run()) == writer.settled()


@pytest.mark.slow
def test_a_view_of_a_store_that_always_changes_succeeds_or_says_so() -> None:
    writer = begun()
    before = writer.settled()

    def looked() -> None:
        trimmed(writer)

    try:
        view = looking(writer.site.disk, looked).run()
    except OSError as error:
        assert "changes faster" in str(error)  # noqa: PT017
    else:
        _check(held_by(view), before, writer)


def test_a_copy_at_any_moment_shows_the_acknowledged_entries() -> None:
    writer = begun()
    copies: list[tuple[SimulatedDisk, Held, int]] = []
    writer.site.disk.watch(
        lambda _: copies.append((writer.site.disk.copy(), writer.settled(), len(writer.ever[3])))
    )
    writer.append(2, b"more")
    trimmed(writer)
    writer.delete(3)
    writer.append(3, b"of another ledger")
    writer.store.ledger(2).fence()
    trimmed(writer)
    assert len(copies) > 40
    for disk, held, ledgers in copies:
        seen = held_by(looking(disk).run())
        for ledger_id, entries in held.items():
            if ledger_id != 3 or ledgers == len(writer.ever[3]):
                assert entries.items() <= seen[ledger_id].items()
        assert 3 not in seen or any(seen[3].items() <= one.items() for one in writer.ever[3])


def test_a_view_changes_no_file_and_no_name() -> None:
    writer = begun()
    disk = writer.site.disk
    before, operations = disk.image(), len(disk.trace)
    looking(disk).run().close()
    assert disk.image() == before
    assert len(disk.trace) == operations


# ── a view that is refreshed ─────────────────────────────────────────────────────────────────────────────


def gone_on(writer: Writer) -> None:
    for number in range(3):
        writer.append(2, b"later %d" % number)
    writer.append(5, b"a new ledger")


def fenced(writer: Writer) -> None:
    gone_on(writer)
    writer.store.ledger(2).fence()


def fenced_and_trimmed(writer: Writer) -> None:
    fenced(writer)
    trimmed(writer)


def trimmed_and_more_of_each(writer: Writer) -> None:
    """The journals after the mark have entries of a ledger that may be deleted next."""
    trimmed(writer)
    for ledger_id in (2, 3):
        writer.append(ledger_id, b"behind the mark")


def opened_again(writer: Writer) -> None:
    gone_on(writer)
    writer.store.close()
    writer.store = writer.site.open()
    gone_on(writer)


def index_lost(writer: Writer) -> None:
    gone_on(writer)
    writer.store.close()
    writer.site.remove(f"{LEDGERS}/index")
    writer.store = writer.site.open()
    trimmed_and_gone_on(writer)


MORE_MEDDLING = [*MEDDLING, gone_on, fenced, fenced_and_trimmed, opened_again]


@pytest.mark.parametrize("meddle", MORE_MEDDLING, ids=lambda meddle: meddle.__name__)
def test_a_refresh_shows_exactly_the_current_content(meddle: Callable[[Writer], None]) -> None:
    writer = begun()
    with following(writer.site.disk).run() as view:
        meddle(writer)
        view.refresh()
        assert held_by(view) == writer.settled()
        assert view.metadata(2).fenced is writer.store.ledger(2).is_fenced
        gone_on(writer) if not view.metadata(2).fenced else trimmed(writer)
        view.refresh()
        assert held_by(view) == writer.settled()


def test_a_refresh_reads_everything_again_if_the_index_was_rebuilt() -> None:
    writer = begun()
    with looking(writer.site.disk).run() as view:
        before = view.ledger(2).payloads()
        first = next(before)
        index_lost(writer)
        view.refresh()
        assert held_by(view) == writer.settled()
        assert [first, *before] == [b"first %d" % number for number in range(3)] + [
            b"then %d" % number for number in range(3)
        ]


def refresh_looks() -> int:
    count = 0

    def looked() -> None:
        nonlocal count
        count += 1

    writer = begun()
    view = following(writer.site.disk, looked).run()
    trimmed_and_gone_on(writer)
    count = 0
    view.refresh()
    return count


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize(
    "first", [gone_on, trimmed_and_more_of_each, deleted], ids=lambda first: first.__name__
)
@pytest.mark.parametrize("meddle", MEDDLING[1:], ids=lambda meddle: meddle.__name__)
def test_a_refresh_misses_nothing_acknowledged_while_the_writer_goes_on(
    first: Callable[[Writer], None], meddle: Callable[[Writer], None]
) -> None:
    for moment in range(1, refresh_looks() + 1):
        writer = begun()
        left = [0]

        def looked(writer: Writer = writer, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0 and 3 in writer.held:
                meddle(writer)

        view = following(writer.site.disk, looked).run()
        first(writer)
        before, left[0] = writer.settled(), moment
        view.refresh()
        left[0] = 0
        _check(held_by(view), before, writer)
        view.refresh()
        assert held_by(view) == writer.settled()


def test_a_refresh_reads_only_the_new_groups_of_the_journals() -> None:
    writer = begun()
    opened: list[str] = []
    indexes: list[Any] = []

    def open_index() -> Any:
        indexes.append(FollowingIndex(FileIndexPlace(Layout(writer.site.disk.root()).ledgers)))
        return indexes[-1]

    view = ViewReader(Layout(Opened(writer.site.disk.root(), opened)), open_index).run()
    known = len(indexes)
    before = set(opened)
    opened.clear()
    gone_on(writer)
    view.refresh()
    assert held_by(view) == writer.settled()
    assert len(indexes) == known
    assert len({name for name in before if name.endswith(".txn")}) > 1
    assert len({name for name in opened if name.endswith(".txn")}) == 1
    trimmed(writer)
    view.refresh()
    assert held_by(view) == writer.settled()
    assert len(indexes) == known


def test_a_refresh_with_a_checkpoint_in_between_keeps_the_index_open() -> None:
    for moment in range(1, 12):
        writer = begun()
        indexes: list[Any] = []
        left = [0]

        def looked(writer: Writer = writer, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                trimmed(writer)

        def open_index(writer: Writer = writer, indexes: list[Any] = indexes) -> Any:
            indexes.append(FollowingIndex(FileIndexPlace(Layout(writer.site.disk.root()).ledgers)))
            return indexes[-1]

        view = ViewReader(Layout(Watched(writer.site.disk.root(), looked)), open_index).run()
        gone_on(writer)
        known, left[0] = len(indexes), moment
        view.refresh()
        assert len(indexes) == known


def test_a_refresh_releases_entries_that_a_checkpoint_has_moved() -> None:
    writer = begun()
    with following(writer.site.disk).run() as view:
        assert view.journaled_ids(2)
        trimmed(writer)
        view.refresh()
        assert view.journaled_ids(2) == []
        assert view.count(2) == len(writer.held[2])


@pytest.mark.parametrize("meddle", MORE_MEDDLING[5:] + MEDDLING[:2], ids=lambda meddle: meddle.__name__)
def test_an_iterator_begun_before_a_refresh_continues_after_it(meddle: Callable[[Writer], None]) -> None:
    writer = begun()
    with following(writer.site.disk).run() as view:
        ledger = view.ledger(2)
        expected = list(writer.held[2].values())
        for step in range(1, len(expected)):
            begun_before, ids = ledger.payloads(), view.ids(2)
            first = [next(begun_before) for _ in range(step)]
            some = [next(ids) for _ in range(step)]
            if step == 1:
                meddle(writer)
            view.refresh()
            rest = list(begun_before)
            expected = expected if step == 1 else list(writer.held[2].values())
            assert first + rest == expected
            assert [*some, *ids][: len(expected)] == list(range(len(expected)))


ADDS = """
import sys
from recovery import open_store
with open_store(sys.argv[1]) as store:
    store.ledger(1).append(b"two")
"""


def add_elsewhere(root: Path) -> None:
    subprocess.run([sys.executable, "-c", ADDS, str(root)], check=True)


def no_checkpoint(_: Path) -> None:
    """Only the journals change."""


@pytest.mark.parametrize("before", [no_checkpoint, add_elsewhere], ids=lambda before: before.__name__)
def test_a_refresh_shows_entries_of_a_bookie_that_wrote_after_us(
    tmp_path: Path, before: Callable[[Path], None]
) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        store.ledger(1).append(b"one")
    with open_view(root) as view:
        before(root)
        theirs = bookie_journal([journal_records(made_ledger(7, 3))])
        (root / "journal" / "current" / "ff.txn").write_bytes(theirs)
        view.refresh()
        assert view.index_found is IndexFound.ADOPTED
        assert view.ledger(7).last_entry_id == 2
        assert view.ledger(1).read(0).payload == b"one"


def test_a_refresh_opens_a_rebuilt_index(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        store.ledger(1).append(b"one")
    with open_view(root) as view:
        before = view.ledger(1).payloads()
        shutil.rmtree(root / LEDGERS / "index")
        add_elsewhere(root)
        view.refresh()
        assert view.index_found is IndexFound.GOOD
        assert list(view.ledger(1).payloads()) == list(before) == [b"one", b"two"]


def test_a_refresh_reads_a_bookie_s_directory_again(tmp_path: Path) -> None:
    root = tmp_path / "bookie"
    shutil.copytree(fixtures.bookie("03a_crash_after_checkpoint") / "bookie", root)
    with open_view(root) as view:
        before = held_by(view)
        view.refresh()
        assert view.index_found is IndexFound.ADOPTED
        assert held_by(view) == before


# ── groups that are half written, and damage ─────────────────────────────────────────────────────────────


class Flickering(Watched):
    """Shows one file with some bytes missing, for the first so many times that it is opened."""

    def __init__(self, below: Directory, name: str, place: slice, times: list[int]) -> None:
        super().__init__(below, lambda: None)
        self._below = below
        self._flicker = name, place, times

    def directory(self, name: str) -> Directory:
        return Flickering(self._below.directory(name), *self._flicker)

    def open(self, name: str) -> ReadFile:
        file = self._below.open(name)
        flickering, place, times = self._flicker
        if name == flickering and times[0]:
            times[0] -= 1
            return Torn(file, place)
        return file


class Torn(WatchedReadFile):
    def __init__(self, file: ReadFile, place: slice) -> None:
        super().__init__(file, lambda: None)
        self._place = place

    def read(self, offset: int, size: int) -> bytes:
        data = bytearray(self._file.read(0, offset + size))
        data[self._place] = bytes(len(data[self._place]))
        return bytes(data[offset:])


def in_one_journal() -> Writer:
    writer = Writer()
    for number in range(4):
        writer.append(1, b"entry %d" % number)
    return writer


def flickering(writer: Writer, place: slice, times: int) -> ViewReader:
    layout = Layout(Flickering(writer.site.disk.root(), "1.txn", place, [times]))
    return ViewReader(layout, FileIndexPlace(layout.ledgers).open)


SECOND_GROUP = slice(8192 + 100, 12288)


def test_a_half_written_group_before_a_whole_one_is_read_again() -> None:
    writer = in_one_journal()
    assert held_by(flickering(writer, SECOND_GROUP, 1).run()) == writer.settled()


def test_damage_in_two_reads_is_raised() -> None:
    with pytest.raises(CorruptionError, match=r"JRN-003 1\.txn@8192"):
        flickering(in_one_journal(), SECOND_GROUP, 1000).run()


def test_a_group_at_the_end_that_is_half_written_is_no_finding() -> None:
    writer = in_one_journal()
    view = flickering(writer, slice(16384 + 10, 20480), 1000).run()
    assert view.findings == ()
    assert held_by(view)[1] == {number: b"entry %d" % number for number in range(3)}


# ── what is known of ledgers ─────────────────────────────────────────────────────────────────────────────


def test_metadata_that_is_only_in_the_journals_is_known() -> None:
    writer = in_one_journal()
    ledger = writer.store.ledger(1)
    ledger.set_explicit_lac(2)
    ledger.fence()
    writer.store.ledger(5).fence()
    view = looking(writer.site.disk).run()
    assert view.metadata(1).fenced
    assert view.last_add_confirmed(1, view.end(1)) == 2
    assert view.ledgers() == [1, 5]
    assert (view.count(5), view.end(5), view.exists(5), view.exists(6)) == (0, None, True, False)


def test_a_view_says_where_a_ledger_s_entries_are() -> None:
    writer = in_one_journal()
    writer.append(2, b"logged")
    writer.checkpoint()
    writer.append(1, b"behind")
    view = looking(writer.site.disk).run()
    both, log = view.whereabouts(1), view.whereabouts(2)
    assert both.journal_id == 1
    assert both.location is not None
    assert (log.journal_id, log.location is not None) == (None, True)
    last = view.whereabouts_of_last(1)
    assert (last.journal_id, last.location) == (1, None)
    assert view.whereabouts_of_last(2).location == log.location
    assert view.size_at(log.location) == 4 + 32 + 4 + len(b"logged")  # type: ignore[arg-type]


def test_an_entry_in_journal_and_log_counts_once() -> None:
    writer = in_one_journal()
    mark = writer.site.bytes_of(f"{LEDGERS}/lastMark")
    writer.checkpoint()
    writer.append(1, b"behind")
    # As a crash between the last two steps leaves it, and as a reader beside a live store may find it.
    writer.site.put(f"{LEDGERS}/lastMark", mark)
    view = looking(writer.site.disk).run()
    assert payloads(view, 1) == writer.held[1]


def test_ids_in_any_order_are_listed_ascending() -> None:
    writer = Writer()
    for entry_id in (7, 3, 5):
        writer.store.add(Entry(1, entry_id, -1, 10 * entry_id, b"placed"))
    writer.checkpoint()
    for entry_id in (4, 9, 3):
        writer.store.add(Entry(1, entry_id, -1, 10 * entry_id, b"behind"))
    view = looking(writer.site.disk).run()
    assert list(view.ids(1)) == [3, 4, 5, 7, 9]
    assert list(view.ids(1, 4, 7)) == [4, 5, 7]
    assert (view.count(1), view.first_id(1), view.last_id(1)) == (5, 3, 9)
    assert payloads(view, 1)[3] == b"behind"


def test_the_journal_of_the_largest_id_is_named_and_not_the_newest() -> None:
    writer = Writer()
    writer.store.add(Entry(5, 9, -1, 10, b"placed"))
    writer.roll()
    writer.store.add(Entry(5, 3, -1, 10, b"behind"))
    assert len(writer.site.names("journal/current", ".txn")) > 1
    view = looking(writer.site.disk).run()
    assert view.whereabouts_of_last(5).journal_id == 1


def test_a_delete_that_only_the_index_has_counts() -> None:
    writer = begun()
    writer.delete(4)
    rows = f"{LEDGERS}/ledgers.rows"
    before = writer.site.bytes_of(rows)
    writer.delete(3)
    filed = metadata_log.load(writer.site.directory(LEDGERS), 0).rows
    index = FileIndexPlace(writer.site.directory(LEDGERS)).open()
    assert isinstance(index, FileIndex)
    with index.change() as change:
        change.remove([3])
        change.put_rows([filed[3]])
        change.commit(None)
    writer.site.put(rows, before)
    assert 3 not in metadata_log.load(writer.site.directory(LEDGERS), 0).rows
    assert held_by(looking(writer.site.disk).run()) == writer.settled()


@pytest.mark.parametrize("group", [-2, -1])
def test_rot_in_either_group_of_a_delete_does_not_bring_the_ledger_back(group: int) -> None:
    writer = begun()
    writer.delete(4)
    writer.delete(3)
    rows = f"{LEDGERS}/ledgers.rows"
    writer.site.flip(rows, len(writer.site.bytes_of(rows)) + group * ALIGNMENT + 10)
    if group == -2:
        with pytest.raises(CorruptionError, match="LGR-002"):
            looking(writer.site.disk).run()
    else:
        assert held_by(looking(writer.site.disk).run()) == writer.settled()


# ── where the index cannot be used ───────────────────────────────────────────────────────────────────────


def test_without_an_index_one_is_made_in_memory() -> None:
    writer = begun()
    writer.store.ledger(2).fence()
    writer.delete(3)
    writer.checkpoint()
    writer.append(4, b"journaled")
    writer.site.remove(f"{LEDGERS}/index")
    view = looking(writer.site.disk).run()
    assert view.index_found is IndexFound.REBUILT
    assert held_by(view) == writer.settled()
    assert view.metadata(2).fenced


def test_an_index_that_is_older_than_the_mark_is_not_used() -> None:
    writer = begun()
    older = writer.site.bytes_of(f"{LEDGERS}/index")
    writer.checkpoint()
    writer.site.put(f"{LEDGERS}/index", older)
    view = looking(writer.site.disk).run()
    assert view.index_found is IndexFound.REBUILT
    assert held_by(view) == writer.settled()


def test_where_the_mark_is_damaged_the_index_stands_in() -> None:
    writer = begun()
    writer.site.flip(f"{LEDGERS}/lastMark", 30)
    assert held_by(looking(writer.site.disk).run()) == writer.settled()
    writer.site.remove(f"{LEDGERS}/index")
    with pytest.raises(CorruptionError, match="MRK-001"):
        looking(writer.site.disk).run()


def test_where_the_mark_is_lost_the_index_stands_in() -> None:
    writer = begun()
    writer.site.remove(f"{LEDGERS}/lastMark")
    assert held_by(looking(writer.site.disk).run()) == writer.settled()


def test_without_mark_and_index_a_store_is_damaged() -> None:
    writer = begun()
    writer.site.remove(f"{LEDGERS}/lastMark")
    writer.site.flip(f"{LEDGERS}/index", 20)
    with pytest.raises(CorruptionError, match="MRK-001 lastMark@0: missing"):
        looking(writer.site.disk).run()


def test_a_missing_log_is_a_finding_and_the_rest_is_shown() -> None:
    writer = begun()
    writer.checkpoint()
    writer.site.remove(f"{LEDGERS}/0.log")
    view = looking(writer.site.disk).run()
    [finding] = view.findings
    assert finding.startswith("ELG-005 0.log")
    assert view.ledgers() == sorted(writer.held)


def test_a_missing_journal_is_damage() -> None:
    writer = in_one_journal()
    writer.checkpoint()
    writer.site.remove("journal/current/1.txn")
    with pytest.raises(CorruptionError, match="MRK-002"):
        looking(writer.site.disk).run()


@pytest.mark.parametrize("name", fixtures.SETS)
def test_a_real_bookie_s_directory_shows_what_its_manifest_says(name: str, tmp_path: Path) -> None:
    root = tmp_path / "bookie"
    shutil.copytree(fixtures.bookie(name) / "bookie", root)
    before = _listing(root)
    with open_view(root) as view:
        assert view.index_found is IndexFound.ADOPTED
        for ledger in fixtures.manifest(name)["ledgers"]:
            _check_manifest(view, name, ledger)
    assert _listing(root) == before


def _check_manifest(view: View, name: str, ledger: dict[str, Any]) -> None:
    ledger_id = ledger["ledger"]
    if ledger["deleted"]:
        return
    found = payloads(view, ledger_id)
    for entry in ledger["entries"]:
        assert hashlib.sha256(found[entry["entry"]]).hexdigest() == entry["sha256"]
    facts = view.metadata(ledger_id)
    if found:
        assert facts.digest_type == DigestType[ledger["digest_type"]]
        assert view.count(ledger_id) == len(found)
    assert facts.master_key in (None, bytes.fromhex(ledger["master_key"]))
    assert facts.fenced == ledger["fenced"]
    # A journal of version 4 or 5 has none.
    explicit = None if "_v4" in name or "_v5" in name else ledger["explicit_lac"]
    assert confirmed_by(facts) == (NO_ENTRY if explicit is None else explicit)


def test_a_directory_is_read_again_if_its_bookie_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "bookie"
    shutil.copytree(fixtures.bookie("03a_crash_after_checkpoint") / "bookie", root)
    calm, disturbed = (Opened(PosixDirectory(root), []) for _ in range(2))
    ViewReader(Layout(calm), NoIndex).run()
    disturbed.disturb = lambda: (root / LEDGERS / "lastMark").write_bytes(bytes(16))
    ViewReader(Layout(disturbed), NoIndex).run()
    assert disturbed.opened.count("0.log") == 2 * calm.opened.count("0.log")


class Opened(Watched):
    """Records the files that are opened, and calls a function before the first journal."""

    def __init__(self, below: Directory, opened: list[str]) -> None:
        super().__init__(below, lambda: None)
        self._below = below
        self.opened = opened
        self.disturb: Callable[[], object] | None = None

    def directory(self, name: str) -> Directory:
        inner = Opened(self._below.directory(name), self.opened)
        inner.disturb = self.disturb
        return inner

    def open(self, name: str) -> ReadFile:
        if self.disturb is not None and name == "0.log" and name not in self.opened:
            self.disturb()
        self.opened.append(name)
        return super().open(name)


def test_a_log_that_a_bookie_has_made_after_us_is_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        store.ledger(77).append(b"ours")
    [log] = [path for path in fixtures.entry_logs("05a_compaction") if path.name == "3.log"]
    shutil.copy(log, root / LEDGERS / "3.log")
    with open_view(root) as view:
        assert view.index_found is IndexFound.ADOPTED
        assert view.ledgers()[-1] == 77
        assert view.count(3) == 42


def test_there_is_no_view_of_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        open_view(tmp_path)
    with pytest.raises(NotAStore):
        open_view(tmp_path / "nowhere")


# ── real files ───────────────────────────────────────────────────────────────────────────────────────────


LIVE = """
import sys, threading
from recovery import open_store
from storage.config import StoreConfig

config = StoreConfig(
    memtable_size_max=256 << 10, entry_size_max=64 << 10, group_size_max=64 << 10, journal_size=512 << 10,
    journal_max_backups=0,
)
store = open_store(sys.argv[1], config)

def add(ledger_id):
    ledger = store.ledger(ledger_id)
    while True:
        ids = ledger.append_many([bytes([ledger_id]) * 500] * 7)
        sys.stdout.write(f"{ledger_id} {ids[-1]}\\n")
        sys.stdout.flush()

def rebuild_index():
    ledger = store.ledger(9)
    while True:
        ledger.append(b"9" * 100)
        ledger.fence()
        ledger.delete()

for work in (lambda: add(1), lambda: add(2), rebuild_index):
    threading.Thread(target=work, daemon=True).start()
while True:
    store.checkpoint()
"""


class LiveStore:
    """A store that another process has open. Its threads add, checkpoint, delete, and report each step."""

    def __init__(self, root: Path) -> None:
        self.last: dict[int, int] = {}
        """The last acknowledged entry of each ledger."""
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, "-c", LIVE, str(root)], stdout=subprocess.PIPE, text=True
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):
                ledger_id, entry_id = map(int, line.split())
                with self._news:
                    self.last[ledger_id] = entry_id
                    self._news.notify_all()

    def wait_for(self, more: int) -> dict[int, int]:
        """Wait until each ledger has so many more entries, and return the acknowledged ones."""
        with self._news:
            goal = {ledger_id: self.last.get(ledger_id, -1) + more for ledger_id in (1, 2)}
            came = self._news.wait_for(lambda: all(self.last.get(one, -1) >= goal[one] for one in goal), 60)
            assert came
            return dict(self.last)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Path, LiveStore]]:
    root = tmp_path / "store"
    store = LiveStore(root)
    yield root, store
    store.kill()


@pytest.mark.slow
def test_a_view_beside_a_live_store_misses_nothing_acknowledged(live: tuple[Path, LiveStore]) -> None:
    root, store = live
    for _ in range(15):
        acknowledged = store.wait_for(20)
        with open_view(root) as view:
            assert view.findings == ()
            _check_live(view, acknowledged)


def test_a_view_follows_a_live_store(live: tuple[Path, LiveStore]) -> None:
    root, store = live
    store.wait_for(20)
    with open_view(root) as view:
        payloads_before = view.ledger(1).payloads()
        next(payloads_before)
        for _ in range(3):
            acknowledged = store.wait_for(10)
            view.refresh()
            assert view.index_found is IndexFound.GOOD
            _check_live(view, acknowledged)
        assert set(payloads_before) == {bytes([1]) * 500}


@pytest.mark.slow
def test_a_view_follows_the_store_after_a_kill_and_an_opening(live: tuple[Path, LiveStore]) -> None:
    root, store = live
    store.wait_for(5)
    with open_view(root) as view:
        store.kill()
        view.refresh()
        _check_live(view, store.last)
        with open_store_elsewhere(root) as after:
            acknowledged = after.wait_for(5)
            view.refresh()
            _check_live(view, acknowledged)


@contextmanager
def open_store_elsewhere(root: Path) -> Iterator[LiveStore]:
    store = LiveStore(root)
    try:
        yield store
    finally:
        store.kill()


def _check_live(view: View, acknowledged: dict[int, int]) -> None:
    for ledger_id, last in acknowledged.items():
        found = payloads(view, ledger_id)
        assert sorted(found) == list(range(len(found)))
        assert len(found) > last
        assert set(found.values()) == {bytes([ledger_id]) * 500}
        count, last_id = view.consistently(partial(_count_and_last, view, ledger_id))
        assert count == (last_id or 0) + 1
        end = view.end(ledger_id)
        assert end is not None
        assert end.length >= 500 * (last + 1)


def _count_and_last(view: View, ledger_id: int) -> tuple[int, int | None]:
    return view.count(ledger_id), view.last_id(ledger_id)


def test_a_view_of_a_killed_store_shows_everything_and_changes_no_byte(live: tuple[Path, LiveStore]) -> None:
    root, store = live
    store.wait_for(300)
    store.kill()
    before = _listing(root)
    with open_view(root) as view:
        _check_live(view, store.last)
    assert _listing(root) == before


def test_an_opening_finds_what_a_view_showed(live: tuple[Path, LiveStore]) -> None:
    root, store = live
    store.wait_for(100)
    store.kill()
    with open_view(root) as view:
        seen = held_by(view)
    with open_store(root) as opened:
        assert opened.ledgers() == sorted(seen)
        for ledger_id, entries in seen.items():
            assert list(opened.ledger(ledger_id).payloads()) == list(entries.values())


def test_a_store_in_a_read_only_directory_can_be_viewed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        store.ledger(1).append(b"one")
    before = _listing(root)
    (root / LEDGERS / "index" / "lock.mdb").unlink()
    with open_view(root) as view:
        assert payloads(view, 1) == {0: b"one"}
    assert not (root / LEDGERS / "index" / "lock.mdb").exists()
    assert before.keys() - _listing(root).keys() == {f"{LEDGERS}/index/lock.mdb"}


def test_a_view_in_the_process_of_the_open_store_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.ledger(1).append(b"one")
        with pytest.raises(AlreadyOpen, match="already open in this process"):
            open_view(tmp_path / "store")
        # Its locks are kept, so that another process still sees that the index is in use.
        asked = "import sys; from storage.disk.posix import is_locked_elsewhere as f; print(f(sys.argv[1]))"
        lock = tmp_path / "store" / LEDGERS / "index" / "lock.mdb"
        done = subprocess.run(
            [sys.executable, "-c", asked, str(lock)], capture_output=True, text=True, check=True
        )
        assert done.stdout == "True\n"


def _listing(root: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.stat().st_size,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(root.rglob("*"))
    }
