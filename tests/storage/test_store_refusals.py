"""Openings and adds that are refused, by which error, and that they change nothing."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fixtures
import lmdb
import pytest
from crc32c import crc32c

from recovery import open_store
from recovery.audit.self_test.stores import copy_running
from storage.checkpoint import mark_format
from storage.config import StoreConfig
from storage.disk import filenames
from storage.entry.model import ID_MAX, Entry
from storage.errors import (
    CorruptionError,
    EntryTooLarge,
    ForeignStore,
    InvalidEntry,
    NewerFormat,
    NoSuchEntry,
    NoSuchLedger,
    NotAStore,
    StoreClosed,
    StoreError,
    StoreLocked,
)
from storage.index import state_format
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.ledger import Ledger
    from storage.store import Store

ROOT = Path(__file__).parent.parent.parent
QUIET = StoreConfig(
    checkpoint_interval_s=None,
    idle_seal_s=None,
    entry_size_max=8 << 10,
    group_size_max=64 << 10,
    journal_size=1 << 20,
)
JOURNAL = "journal/current"
LEDGERS = "ledgers/current"


def listing(path: Path) -> dict[str, bytes | None]:
    """Return every file below the directory with its content, to check that nothing changes."""
    return {
        str(one.relative_to(path)): one.read_bytes() if one.is_file() else None
        for one in sorted(path.rglob("*"))
        if one.name != "lock.mdb"
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Create a store with an entry in its log and one that is only in a journal, as a killed process leaves
    it."""
    with open_store(tmp_path / "live", QUIET) as store:
        store.ledger(1).append(b"logged")
        store.checkpoint()
        store.ledger(1).append(b"journaled")
        copy_running(tmp_path / "live", tmp_path / "store")
    return tmp_path / "store"


def refused(path: Path, kind: type[StoreError]) -> StoreError:
    """Return the error that refuses the store, and check that two attempts change nothing."""
    before = listing(path)
    with pytest.raises(kind):
        open_store(path, QUIET)
    assert listing(path) == before
    with pytest.raises(kind) as caught:
        open_store(path, QUIET)
    assert listing(path) == before
    return caught.value


def run(script: str, *arguments: object) -> str:
    """Return the output of another process."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_store_of_these_tests_opens(path: Path) -> None:
    with open_store(path, QUIET) as store:
        assert list(store.ledger(1).payloads()) == [b"logged", b"journaled"]


# ── the lock ─────────────────────────────────────────────────────────────────────────────────────────────

OPEN = """
import sys
from recovery import open_store
from storage.errors import StoreLocked
try:
    open_store(sys.argv[1])
except StoreLocked as error:
    print(error.pid, error)
"""


def test_the_error_of_a_second_process_names_the_first(path: Path) -> None:
    with open_store(path, QUIET) as store:
        before = listing(path)
        told = run(OPEN, path)
        assert told.split()[0] == str(os.getpid())
        assert f"is in use by process {os.getpid()}" in told
        assert listing(path) == before
        assert store.ledger(1).append(b"undisturbed") == 2


def test_a_second_opener_in_the_same_process_is_refused(path: Path) -> None:
    with open_store(path, QUIET) as store:
        with pytest.raises(StoreLocked):
            open_store(path, QUIET)
        with pytest.raises(StoreLocked):
            open_store(path.parent / ".." / path.parent.name / path.name, QUIET)
        assert store.ledger(1).append(b"undisturbed") == 2
    with open_store(path, QUIET) as store:
        assert store.ledger(1).last_entry_id == 2


def test_a_refused_opening_releases_the_lock(path: Path) -> None:
    mark, index = path / LEDGERS / "lastMark", path / LEDGERS / "index" / "data.mdb"
    saved = mark.read_bytes(), index.read_bytes()
    mark.unlink()
    index.write_bytes(b"?" * len(saved[1]))
    refused(path, CorruptionError)
    mark.write_bytes(saved[0])
    index.write_bytes(saved[1])
    with open_store(path, QUIET) as store:
        assert store.ledger(1).last_entry_id == 1


FORK = """
import os, sys
from recovery import open_store
from storage import StoreConfig
from storage.entry.model import Entry
from storage.errors import ForkedStore
path = sys.argv[1]
store = open_store(path)
ledger = store.ledger(1)
ledger.append(b"parent's")
ledger.read(0)
verbs = {
    "ledger": lambda: store.ledger(1), "ledgers": store.ledgers, "checkpoint": store.checkpoint,
    "add": lambda: store.add(Entry(1, 9, -1, 1, b"x")), "append": lambda: ledger.append(b"x"),
    "append_many": lambda: ledger.append_many([b"x"]), "submit": lambda: ledger.submit(b"x"),
    "read": lambda: ledger.read(0), "entries": lambda: list(ledger.entries()),
    "payloads": lambda: list(ledger.payloads()), "last": lambda: ledger.last_entry_id,
    "lac": lambda: ledger.last_add_confirmed,
}
told, child_tells = os.pipe()
end, end_tells = os.pipe()
child = os.fork()
if child == 0:
    os.close(end_tells)
    wrong = []
    for name, verb in verbs.items():
        try:
            verb()
        except ForkedStore:
            continue
        except BaseException as error:
            wrong.append(f"{name}: {error!r}")
            continue
        wrong.append(name)
    store.close()
    os.write(child_tells, repr(wrong).encode())
    os.read(end, 1)
    os._exit(0)
print(os.read(told, 10000).decode())
print(ledger.append(b"parent's again"))
store.close()
# The child lives on, and holds nothing.
again = open_store(path)
print(list(again.ledger(1).payloads()))
again.close()
os.close(end_tells)
os.waitpid(child, 0)
"""


@pytest.mark.slow
def test_a_fork_is_refused_every_call_and_holds_no_lock(tmp_path: Path) -> None:
    wrong, appended, found = run(FORK, tmp_path / "store").splitlines()
    assert wrong == "[]"
    assert appended == "1"
    assert found == '[b"parent\'s", b"parent\'s again"]'


# ── a closed store ───────────────────────────────────────────────────────────────────────────────────────

ENTRY = Entry(1, 9, -1, 100, b"x")
VERBS: dict[str, Callable[[Store, Ledger], object]] = {
    "ledger": lambda store, _: store.ledger(1),
    "ledgers": lambda store, _: store.ledgers(),
    "add": lambda store, _: store.add(ENTRY),
    "checkpoint": lambda store, _: store.checkpoint(),
    "append": lambda _, ledger: ledger.append(b"x"),
    "append_many": lambda _, ledger: ledger.append_many([b"x"]),
    "append_many of none": lambda _, ledger: ledger.append_many([]),
    "submit": lambda _, ledger: ledger.submit(b"x"),
    "read": lambda _, ledger: ledger.read(0),
    "read of none": lambda _, ledger: ledger.read(77),
    "entries": lambda _, ledger: list(ledger.entries()),
    "payloads": lambda _, ledger: list(ledger.payloads()),
    "last_entry_id": lambda _, ledger: ledger.last_entry_id,
    "last_add_confirmed": lambda _, ledger: ledger.last_add_confirmed,
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_closed_store_answers_nothing(path: Path, verb: str) -> None:
    store = open_store(path, QUIET)
    ledger = store.ledger(1)
    store.close()
    before = listing(path)
    with pytest.raises(StoreClosed):
        VERBS[verb](store, ledger)
    store.close()
    assert listing(path) == before


def test_following_a_store_ends_with_it(path: Path) -> None:
    store = open_store(path, QUIET)
    found = store.ledger(1).follow()
    assert [next(found).payload, next(found).payload] == [b"logged", b"journaled"]
    store.close()
    assert list(found) == []


@pytest.mark.parametrize("verb", ["entries", "payloads"])
@pytest.mark.parametrize("where", ["in memory", "in a log"])
def test_reading_that_began_before_the_close_ends_with_it(path: Path, verb: str, where: str) -> None:
    with open_store(path, QUIET) as store:
        store.ledger(1).append_many([b"x" * 4000] * 500)
        if where == "in a log":
            store.checkpoint()
        found = getattr(store.ledger(1), verb)()
        next(found)
    with pytest.raises(StoreClosed):
        list(found)


def test_following_existing_entries_ends_with_the_store(path: Path) -> None:
    with open_store(path, QUIET) as store:
        store.ledger(1).append_many([b"x" * 4000] * 500)
        store.checkpoint()
        found = store.ledger(1).follow()
        next(found)
    assert len(list(found)) < 400


# ── invalid adds ─────────────────────────────────────────────────────────────────────────────────────────

OVERHEAD = 36  # the head of an entry, and its CRC-32C


def assert_nothing_added(store: Store) -> None:
    ledger = store.ledger(1)
    assert (ledger.last_entry_id, store.ledgers()) == (1, [1])
    assert ledger.append(b"next") == 2
    assert ledger.read(2).length == len(b"loggedjournalednext")


ADDS: dict[str, Callable[[Store, bytes], object]] = {
    "append": lambda store, payload: store.ledger(1).append(payload),
    "append_many": lambda store, payload: store.ledger(1).append_many([b"good", payload]),
    "submit": lambda store, payload: store.ledger(1).submit(payload).result(10),
    "add": lambda store, payload: store.add(Entry(1, 2, 1, 15 + len(payload), payload)),
}


@pytest.mark.parametrize("verb", ADDS)
def test_an_entry_that_is_too_large_is_refused(path: Path, verb: str) -> None:
    with open_store(path, QUIET) as store:
        size = QUIET.entry_size_max + 1
        with pytest.raises(EntryTooLarge) as caught:
            ADDS[verb](store, b"x" * (size - OVERHEAD))
        assert (caught.value.size, caught.value.limit) == (size, size - 1)
        assert_nothing_added(store)


@pytest.mark.parametrize("verb", ADDS)
def test_the_largest_entry_is_accepted(path: Path, verb: str) -> None:
    with open_store(path, QUIET) as store:
        payload = b"x" * (QUIET.entry_size_max - OVERHEAD)
        ADDS[verb](store, payload)
        last = store.ledger(1).last_entry_id
        assert last is not None
        assert store.ledger(1).read(last).payload == payload


@pytest.mark.parametrize(
    "payload", ["text", 5, None, 1.5, [1, 2], object()], ids=lambda one: type(one).__name__
)
@pytest.mark.parametrize("verb", ["append", "append_many", "submit"])
def test_a_payload_of_another_type_is_refused(path: Path, verb: str, payload: Any) -> None:
    with open_store(path, QUIET) as store:
        with pytest.raises(TypeError):
            ADDS[verb](store, payload)
        assert_nothing_added(store)


@pytest.mark.parametrize("payloads", [b"bytes", "text", 5], ids=["bytes", "str", "int"])
def test_a_single_payload_is_not_a_sequence_of_payloads(path: Path, payloads: Any) -> None:
    with open_store(path, QUIET) as store:
        with pytest.raises(TypeError):
            store.ledger(1).append_many(payloads)
        assert_nothing_added(store)


def test_a_payload_that_changes_afterwards_was_copied(path: Path) -> None:
    with open_store(path, QUIET) as store:
        ledger, buffer = store.ledger(1), bytearray(b"as it was")
        numbers = [ledger.append(buffer), ledger.append(memoryview(buffer)[3:])]
        future = ledger.submit(buffer)
        buffer[:] = b"?????????"
        numbers.append(future.result(10))
        assert [ledger.read(number).payload for number in numbers] == [b"as it was", b"it was", b"as it was"]


IDS: dict[str, Callable[[Store, int], object]] = {
    "ledger": lambda store, number: store.ledger(number),
    "read": lambda store, number: store.ledger(1).read(number),
    "entries": lambda store, number: next(store.ledger(1).entries(number)),
    "payloads": lambda store, number: next(store.ledger(1).payloads(number)),
    "follow": lambda store, number: next(store.ledger(1).follow(number)),
    "a ledger's entry": lambda _, number: Entry(number, 0, -1, 0, b""),
    "an entry": lambda _, number: Entry(0, number, -1, 0, b""),
}


@pytest.mark.parametrize("verb", IDS)
def test_ids_that_no_file_can_hold_are_refused(path: Path, verb: str) -> None:
    with open_store(path, QUIET) as store:
        for number in (-1, -(1 << 63), ID_MAX + 1):
            with pytest.raises(InvalidEntry):
                IDS[verb](store, number)
        assert_nothing_added(store)


def test_the_largest_ids_are_accepted(path: Path) -> None:
    with open_store(path, QUIET) as store:
        store.add(Entry(ID_MAX, ID_MAX, -1, 4, b"last"))
        assert store.ledger(ID_MAX).read(ID_MAX).payload == b"last"
        store.checkpoint()
        assert store.ledger(ID_MAX).read(ID_MAX).payload == b"last"
    with open_store(path, QUIET) as store:
        assert store.ledgers() == [1, ID_MAX]
        assert store.ledger(ID_MAX).last_entry_id == ID_MAX


def test_missing_entries_and_missing_ledgers_are_distinguished(path: Path) -> None:
    with open_store(path, QUIET) as store:
        with pytest.raises(NoSuchEntry):
            store.ledger(1).read(2)
        with pytest.raises(NoSuchLedger):
            store.ledger(2).read(0)
        with pytest.raises(NoSuchLedger):
            next(store.ledger(2).entries())
        assert store.ledgers() == [1]  # asking for a ledger creates none


# ── directories that are no store of ours ────────────────────────────────────────────────────────────────


def test_a_directory_with_other_files_is_no_store(tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "photographs").mkdir(parents=True)
    (place / "letters.txt").write_text("Dear …")
    assert "letters.txt" in str(refused(place, NotAStore))


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    with open_store(tmp_path, QUIET) as store:
        assert store.opened.created


def test_a_directory_in_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_store(tmp_path / "no" / "store", QUIET)
    assert listing(tmp_path) == {}


@pytest.mark.parametrize("mark", ["its own", "empty", "missing"])
@pytest.mark.parametrize("name", fixtures.SETS)
def test_a_bookie_s_directory_that_never_was_ours_is_refused_with_advice(
    tmp_path: Path, name: str, mark: str
) -> None:
    shutil.copytree(fixtures.bookie(name) / "bookie", tmp_path / "bookie")
    if mark != "its own":
        (tmp_path / "bookie" / LEDGERS / "lastMark").unlink()
    if mark == "empty":
        (tmp_path / "bookie" / LEDGERS / "lastMark").touch()
    assert "rebuild-index" in str(refused(tmp_path / "bookie", ForeignStore))


# ── newer formats ────────────────────────────────────────────────────────────────────────────────────────


def newest_journal(path: Path) -> Path:
    return max((path / JOURNAL).glob("*.txn"), key=lambda one: int(one.stem, 16))


def newer_journal(path: Path) -> None:
    journal = newest_journal(path)
    data = bytearray(journal.read_bytes())
    struct.pack_into(">i", data, 4, 7)
    checksum = crc32c(bytes(data[16:512]), crc32c(bytes(data[:12])))
    struct.pack_into(">I", data, 12, checksum)
    journal.write_bytes(data)


def newer_seal(path: Path) -> None:
    journal = newest_journal(path)
    data = bytearray(journal.read_bytes())
    last = data.rindex(b"LSSL")
    (start,) = struct.unpack_from(">q", data, last + 32)
    data[last + 4] = 2
    struct.pack_into(">I", data, last + 60, crc32c(bytes(data[start : last + 60])))
    journal.write_bytes(data)


def newer_record(path: Path) -> None:
    """Give the last record of the last sealed group a kind that is not known yet."""
    journal = newest_journal(path)
    data = bytearray(journal.read_bytes())
    last = data.rindex(b"LSSL")
    (start,) = struct.unpack_from(">q", data, last + 32)
    entry = data.index(struct.pack(">qq", 1, 1), start)
    struct.pack_into(">q", data, entry + 8, -0x7000)
    struct.pack_into(">I", data, last + 60, crc32c(bytes(data[start : last + 60])))
    journal.write_bytes(data)


def newer_mark(path: Path) -> None:
    mark = path / LEDGERS / "lastMark"
    data = bytearray(mark.read_bytes())
    struct.pack_into(">I", data, 20, 2)
    struct.pack_into(">I", data, mark_format.SIZE - 4, crc32c(bytes(data[:-4])))
    mark.write_bytes(data)


def newer_cookie(path: Path, directory: str) -> None:
    cookie = path / directory / filenames.COOKIE
    cookie.write_bytes(cookie.read_bytes().replace(b"5\n", b"6\n", 1))


def newer_index(path: Path) -> None:
    with lmdb.open(str(path / LEDGERS / "index"), max_dbs=8) as environment:
        states = environment.open_db(b"state")
        with environment.begin(states, write=True) as transaction:
            [(key, value)] = list(transaction.cursor())
            assert value[1] in (1, state_format.VERSION)  # the oldest version that has what the index says
            body = value[:1] + bytes([state_format.VERSION + 1]) + value[2:-4]
            transaction.put(key, body + struct.pack(">I", crc32c(body)))


NEWER: dict[str, Callable[[Path], None]] = {
    "journal": newer_journal,
    "seal": newer_seal,
    "record": newer_record,
    "mark": newer_mark,
    "journal's cookie": lambda path: newer_cookie(path, JOURNAL),
    "ledgers' cookie": lambda path: newer_cookie(path, LEDGERS),
    "index": newer_index,
}


@pytest.mark.parametrize("what", NEWER)
def test_an_index_of_a_newer_version_is_not_changed(path: Path, what: str) -> None:
    NEWER[what](path)
    assert "newer version" in str(refused(path, NewerFormat))


# ── lost parts ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lost", ["journal", JOURNAL, "journal/current/*", "journal/current/VERSION"])
def test_the_error_of_a_lost_journal_directory_suggests_a_disk_that_is_not_mounted(
    path: Path, lost: str
) -> None:
    for one in list(path.glob(lost)):
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    assert "VERSION" in str(refused(path, NotAStore))


@pytest.mark.parametrize("lost", ["ledgers", LEDGERS, "ledgers/current/*"])
def test_a_lost_ledger_directory_is_no_new_store(path: Path, lost: str) -> None:
    for one in list(path.glob(lost)):
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    refused(path, StoreError)


def test_the_directories_of_two_stores_are_refused(path: Path, tmp_path: Path) -> None:
    open_store(tmp_path / "other", QUIET).close()
    shutil.rmtree(path / "journal")
    shutil.copytree(tmp_path / "other" / "journal", path / "journal")
    assert "different stores" in str(refused(path, NotAStore))


def test_a_lost_mark_is_written_again_from_the_index(path: Path) -> None:
    mark = path / LEDGERS / "lastMark"
    before = mark.read_bytes()
    mark.unlink()
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.AHEAD
        assert list(store.ledger(1).payloads()) == [b"logged", b"journaled"]
    assert mark.stat().st_size == len(before)


def test_without_mark_and_index_a_store_is_no_new_store(path: Path) -> None:
    (path / LEDGERS / "lastMark").unlink()
    (path / LEDGERS / "index" / "data.mdb").write_bytes(b"?" * 8192)
    found = refused(path, CorruptionError)
    assert isinstance(found, CorruptionError)
    assert (found.file, found.finding) == ("lastMark", "MRK-001")


def test_a_lost_journal_is_named(path: Path) -> None:
    journal = newest_journal(path)
    journal.unlink()
    found = refused(path, CorruptionError)
    assert isinstance(found, CorruptionError)
    assert (found.file, found.finding) == (journal.name, "MRK-002")


def test_a_lost_journal_that_only_the_mark_s_trailer_names_is_named(path: Path) -> None:
    mark = path / LEDGERS / "lastMark"
    found = mark_format.decode(mark.read_bytes())
    assert isinstance(found, mark_format.Mark)
    assert found.trailer is not None
    newer = replace(found.trailer, newest_journal=int(newest_journal(path).stem, 16) + 1)
    mark.write_bytes(mark_format.encode(replace(found, trailer=newer)))
    refusal = refused(path, CorruptionError)
    assert isinstance(refusal, CorruptionError)
    assert (refusal.file, refusal.finding) == (f"{newer.newest_journal:x}.txn", "MRK-002")


def test_a_lost_or_shortened_entry_log_is_named(path: Path) -> None:
    log = path / LEDGERS / "0.log"
    data = log.read_bytes()
    log.write_bytes(data[:4100])
    short = refused(path, CorruptionError)
    log.unlink()
    missing = refused(path, CorruptionError)
    for found in (short, missing):
        assert isinstance(found, CorruptionError)
        assert (found.file, found.finding) == ("0.log", "ELG-005")


def test_a_store_that_was_moved_opens(path: Path) -> None:
    moved = path.rename(path.with_name("elsewhere"))
    with open_store(moved, QUIET) as store:
        assert list(store.ledger(1).payloads()) == [b"logged", b"journaled"]
