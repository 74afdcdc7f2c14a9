"""Looking at a store: what was acknowledged is there, whoever writes meanwhile, and nothing is written."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import fixtures
import pytest
from file_index import FileIndexPlace
from stepped import LEDGERS, SMALL, Site

from recovery import open_store
from recovery.founding import Layout
from recovery.viewing import Viewing, open_view
from storage import ledger_rows
from storage.codec.rows import ALIGNMENT, HEAD_SIZE
from storage.entry import NO_ENTRY, DigestType, Entry
from storage.errors import CorruptionError, NotAStore
from storage.index import NoIndex
from storage.posix_files import PosixDirectory
from storage.report import IndexFound
from storage.warden import confirmed_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    from recovery.crashlab import SimulatedDisk
    from recovery.view import View
    from storage.files import Directory, Lock, ReadFile, WriteFile
    from storage.store import Store

Held = dict[int, dict[int, bytes]]
"""For each ledger the payload of each entry."""

BIG = 20 << 10
"""Of such entries a few fill the first journal."""


# ── a directory that tells of each look into it ──────────────────────────────────────────────────────────


class WatchedFile:
    def __init__(self, file: ReadFile, looked: Callable[[], None]) -> None:
        self._file = file
        self._looked = looked

    @property
    def name(self) -> str:
        return self._file.name

    def size(self) -> int:
        self._looked()
        return self._file.size()

    def read(self, offset: int, size: int) -> bytes:
        self._looked()
        return self._file.read(offset, size)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class Watched:
    """For looking only: whatever would change something fails the test."""

    def __init__(self, below: Directory, looked: Callable[[], None]) -> None:
        self._below = below
        self._looked = looked

    @property
    def path(self) -> str:
        return self._below.path

    def names(self) -> list[str]:
        self._looked()
        return self._below.names()

    def directory(self, name: str) -> Directory:
        return Watched(self._below.directory(name), self._looked)

    def open(self, name: str) -> ReadFile:
        self._looked()
        return WatchedFile(self._below.open(name), self._looked)

    def make(self) -> None:
        raise AssertionError("made a directory")

    def create(self, name: str) -> WriteFile:
        raise AssertionError(f"created {name}")

    def rename(self, old: str, new: str) -> None:
        raise AssertionError(f"renamed {old} to {new}")

    def remove(self, name: str) -> None:
        raise AssertionError(f"removed {name}")

    def sync(self) -> None:
        raise AssertionError("synced a directory")

    def lock(self, name: str) -> Lock:
        raise AssertionError(f"locked {name}")


def looking(disk: SimulatedDisk, looked: Callable[[], None] = lambda: None) -> Viewing:
    layout = Layout(Watched(disk.root(), looked))
    return Viewing(layout, FileIndexPlace(layout.ledgers).open)


def held_by(view: View) -> Held:
    held = {ledger_id: payloads(view, ledger_id) for ledger_id in view.ledgers()}
    for ledger_id, entries in held.items():
        assert view.count(ledger_id) == len(entries)
        assert (view.first_id(ledger_id), view.last_id(ledger_id)) == (
            min(entries, default=None),
            max(entries, default=None),
        )
    return held


def payloads(view: View, ledger_id: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    digester = view.digester(ledger_id)
    start = 32 if digester is None else 32 + digester.digest_type.width
    for entry_id in view.ids(ledger_id):
        data = view.data(ledger_id, entry_id)
        assert data is not None
        found[entry_id] = data[start:]
    return found


# ── beside a store that goes on ──────────────────────────────────────────────────────────────────────────


class Writer:
    """A store on a simulated disk, and what it has acknowledged."""

    def __init__(self) -> None:
        self.site = Site(SMALL)
        self.store: Store = self.site.open()
        self.held: Held = {}
        self.ever: dict[int, list[dict[int, bytes]]] = {}
        """For each ledger id the ledgers that had it, one after the other."""

    def append(self, ledger_id: int, payload: bytes) -> None:
        entry_id = self.store.ledger(ledger_id).append(payload)
        if ledger_id not in self.held:
            self.held[ledger_id] = {}
            self.ever.setdefault(ledger_id, []).append(self.held[ledger_id])
        self.held[ledger_id][entry_id] = payload

    def delete(self, ledger_id: int) -> None:
        self.site.crew.run()
        self.store.ledger(ledger_id).delete()
        del self.held[ledger_id]

    def checkpoint(self) -> None:
        self.site.checkpoint(self.store)

    def roll(self) -> None:
        """Goes on in another journal, so that the next checkpoint trims the ones before."""
        for number in range(3):
            self.append(1, bytes([number]) * BIG)

    def settled(self) -> Held:
        return {ledger_id: dict(entries) for ledger_id, entries in self.held.items()}


def begun() -> Writer:
    """Something checkpointed, something in the journals alone, in more than one."""
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


@pytest.mark.parametrize("meddle", MEDDLING, ids=lambda meddle: meddle.__name__)
def test_whatever_happens_at_any_moment_of_a_look_nothing_acknowledged_is_missed(
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
def test_what_happened_before_a_look_is_seen_exactly(meddle: Callable[[Writer], None]) -> None:
    writer = begun()
    meddle(writer)
    assert held_by(looking(writer.site.disk).run()) == writer.settled()


def test_a_store_that_never_stands_still_is_seen_or_said_to_change() -> None:
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


def test_at_every_moment_of_a_writer_a_copy_shows_what_was_acknowledged() -> None:
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


def test_a_look_changes_no_byte_and_no_name() -> None:
    writer = begun()
    disk = writer.site.disk
    before, operations = disk.image(), len(disk.trace)
    looking(disk).run().close()
    assert disk.image() == before
    assert len(disk.trace) == operations


# ── groups that are half written, and damage ─────────────────────────────────────────────────────────────


class Flickering(Watched):
    """Shows one file with some bytes missing, so many times that it is opened."""

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


class Torn(WatchedFile):
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


def flickering(writer: Writer, place: slice, times: int) -> Viewing:
    layout = Layout(Flickering(writer.site.disk.root(), "1.txn", place, [times]))
    return Viewing(layout, FileIndexPlace(layout.ledgers).open)


SECOND_GROUP = slice(8192 + 100, 12288)


def test_a_group_that_was_half_written_when_the_next_one_was_seen_is_read_again() -> None:
    writer = in_one_journal()
    assert held_by(flickering(writer, SECOND_GROUP, 1).run()) == writer.settled()


def test_what_is_damaged_every_time_is_damage() -> None:
    with pytest.raises(CorruptionError, match=r"JRN-003 1\.txn@8192"):
        flickering(in_one_journal(), SECOND_GROUP, 1000).run()


def test_a_group_at_the_end_that_is_half_written_is_no_finding() -> None:
    writer = in_one_journal()
    view = flickering(writer, slice(16384 + 10, 20480), 1000).run()
    assert view.findings == ()
    assert held_by(view)[1] == {number: b"entry %d" % number for number in range(3)}


# ── what is known of ledgers ─────────────────────────────────────────────────────────────────────────────


def test_what_only_the_journal_says_of_a_ledger_is_known() -> None:
    writer = in_one_journal()
    ledger = writer.store.ledger(1)
    ledger.set_explicit_lac(2)
    ledger.fence()
    writer.store.ledger(5).fence()
    view = looking(writer.site.disk).run()
    assert view.facts(1).fenced
    assert view.last_add_confirmed(1, view.end(1)) == 2
    assert view.ledgers() == [1, 5]
    assert (view.count(5), view.end(5), view.exists(5), view.exists(6)) == (0, None, True, False)


def test_where_a_ledger_stands_is_told() -> None:
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


def test_an_entry_that_both_have_counts_once() -> None:
    writer = in_one_journal()
    mark = writer.site.bytes_of(f"{LEDGERS}/lastMark")
    writer.checkpoint()
    writer.append(1, b"behind")
    # As a crash between its last two steps leaves it; and beside a live store the mark is read before.
    writer.site.put(f"{LEDGERS}/lastMark", mark)
    view = looking(writer.site.disk).run()
    assert payloads(view, 1) == writer.held[1]


def test_ids_in_any_order_are_told_ascending() -> None:
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


def test_the_journal_of_the_largest_id_is_told_and_not_the_newest() -> None:
    writer = Writer()
    writer.store.add(Entry(5, 9, -1, 10, b"placed"))
    writer.roll()
    writer.store.add(Entry(5, 3, -1, 10, b"behind"))
    assert len(writer.site.names("journal/current", ".txn")) > 1
    view = looking(writer.site.disk).run()
    assert view.whereabouts_of_last(5).journal_id == 1


def test_a_delete_of_which_the_rows_have_lost_the_last_group_is_known_from_the_index() -> None:
    writer = begun()
    writer.delete(4)
    writer.delete(3)
    rows = f"{LEDGERS}/ledgers.rows"
    writer.site.flip(rows, len(writer.site.bytes_of(rows)) - ALIGNMENT + HEAD_SIZE + 5)
    loaded = ledger_rows.load(writer.site.directory(LEDGERS), 0)
    assert (4 in loaded.rows, 3 in loaded.rows) == (True, False)
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
    assert view.how is IndexFound.REBUILT
    assert held_by(view) == writer.settled()
    assert view.facts(2).fenced


def test_an_index_that_is_older_than_the_mark_is_not_asked() -> None:
    writer = begun()
    older = writer.site.bytes_of(f"{LEDGERS}/index")
    writer.checkpoint()
    writer.site.put(f"{LEDGERS}/index", older)
    view = looking(writer.site.disk).run()
    assert view.how is IndexFound.REBUILT
    assert held_by(view) == writer.settled()


def test_where_the_mark_is_damaged_the_index_stands_in() -> None:
    writer = begun()
    writer.site.flip(f"{LEDGERS}/lastMark", 30)
    assert held_by(looking(writer.site.disk).run()) == writer.settled()
    writer.site.remove(f"{LEDGERS}/index")
    with pytest.raises(CorruptionError, match="MRK-001"):
        looking(writer.site.disk).run()


def test_a_lost_mark_is_damage_where_a_store_was() -> None:
    writer = begun()
    writer.site.remove(f"{LEDGERS}/lastMark")
    with pytest.raises(CorruptionError, match="MRK-001 lastMark@0: missing"):
        looking(writer.site.disk).run()


def test_a_log_that_is_gone_is_told_and_the_rest_is_shown() -> None:
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
        assert view.how is IndexFound.ADOPTED
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
    facts = view.facts(ledger_id)
    if found:
        assert facts.digest_type == DigestType[ledger["digest_type"]]
        assert view.count(ledger_id) == len(found)
    assert facts.master_key in (None, bytes.fromhex(ledger["master_key"]))
    assert facts.fenced == ledger["fenced"]
    # A journal of version 4 or 5 holds none.
    explicit = None if "_v4" in name or "_v5" in name else ledger["explicit_lac"]
    assert confirmed_by(facts) == (NO_ENTRY if explicit is None else explicit)


def test_a_bookie_that_goes_on_is_read_again(tmp_path: Path) -> None:
    root = tmp_path / "bookie"
    shutil.copytree(fixtures.bookie("03a_crash_after_checkpoint") / "bookie", root)
    calm, disturbed = (Opened(PosixDirectory(root), []) for _ in range(2))
    Viewing(Layout(calm), NoIndex).run()
    disturbed.disturb = lambda: (root / LEDGERS / "lastMark").write_bytes(bytes(16))
    Viewing(Layout(disturbed), NoIndex).run()
    assert disturbed.opened.count("0.log") == 2 * calm.opened.count("0.log")


class Opened(Watched):
    """Notes what is opened; before the first journal something may happen."""

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


def test_a_log_that_a_bookie_has_made_behind_us_is_read_too(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        store.ledger(77).append(b"ours")
    [log] = [path for path in fixtures.entry_logs("05a_compaction") if path.name == "3.log"]
    shutil.copy(log, root / LEDGERS / "3.log")
    with open_view(root) as view:
        assert view.how is IndexFound.ADOPTED
        assert view.ledgers()[-1] == 77
        assert view.count(3) == 42


def test_where_nothing_is_there_is_no_view(tmp_path: Path) -> None:
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

def remake():
    ledger = store.ledger(9)
    while True:
        ledger.append(b"9" * 100)
        ledger.fence()
        ledger.delete()

for work in (lambda: add(1), lambda: add(2), remake):
    threading.Thread(target=work, daemon=True).start()
while True:
    store.checkpoint()
"""


class LiveStore:
    """A store that another process has open: its threads add, checkpoint, delete, and say what is done."""

    def __init__(self, root: Path) -> None:
        self.last: dict[int, int] = {}
        """For each ledger the last entry that was acknowledged."""
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
        """What was acknowledged when each ledger has so many entries more than now."""
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


def test_beside_a_live_store_nothing_acknowledged_is_missed(live: tuple[Path, LiveStore]) -> None:
    root, store = live
    for _ in range(15):
        acknowledged = store.wait_for(20)
        with open_view(root) as view:
            assert view.findings == ()
            _check_live(view, acknowledged)


def _check_live(view: View, acknowledged: dict[int, int]) -> None:
    for ledger_id, last in acknowledged.items():
        found = payloads(view, ledger_id)
        assert sorted(found) == list(range(len(found)))
        assert len(found) > last
        assert set(found.values()) == {bytes([ledger_id]) * 500}
        count, last_id = view.steadily(partial(_count_and_last, view, ledger_id))
        assert count == (last_id or 0) + 1
        end = view.end(ledger_id)
        assert end is not None
        assert end.length >= 500 * (last + 1)


def _count_and_last(view: View, ledger_id: int) -> tuple[int, int | None]:
    return view.count(ledger_id), view.last_id(ledger_id)


def test_a_killed_store_shows_all_and_stays_byte_for_byte_as_it_was(live: tuple[Path, LiveStore]) -> None:
    root, store = live
    store.wait_for(300)
    store.kill()
    before = _listing(root)
    with open_view(root) as view:
        _check_live(view, store.last)
    assert _listing(root) == before


def test_what_a_look_showed_an_opening_finds(live: tuple[Path, LiveStore]) -> None:
    root, store = live
    store.wait_for(100)
    store.kill()
    with open_view(root) as view:
        seen = held_by(view)
    with open_store(root) as opened:
        assert opened.ledgers() == sorted(seen)
        for ledger_id, entries in seen.items():
            assert list(opened.ledger(ledger_id).payloads()) == list(entries.values())


def test_a_store_can_be_looked_at_where_nobody_may_write(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        store.ledger(1).append(b"one")
    before = _listing(root)
    (root / LEDGERS / "index" / "lock.mdb").unlink()
    with open_view(root) as view:
        assert payloads(view, 1) == {0: b"one"}
    assert not (root / LEDGERS / "index" / "lock.mdb").exists()
    assert before.keys() - _listing(root).keys() == {f"{LEDGERS}/index/lock.mdb"}


def test_the_process_that_has_the_store_open_is_told_to_ask_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.ledger(1).append(b"one")
        with pytest.raises(OSError, match="already open in this process"):
            open_view(tmp_path / "store")
        # Nothing of its locks is gone: another process still sees that the index is in use.
        asked = "import sys; from storage.posix_files import is_locked_elsewhere as f; print(f(sys.argv[1]))"
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
