"""Opening a store with damaged files, or with an index that is damaged, old or missing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
from stepped_store import JOURNAL, LEDGERS, SMALL, Site, payloads
from store_internals import StoreInternals

from recovery import open_store
from recovery.audit.self_test.stores import copy_running
from storage.config import StoreConfig
from storage.errors import CorruptionError, EntryUnreadable, NoSuchEntry, Unauthorized
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.entry.model import Entry
    from storage.ledger import Ledger
    from storage.store import Store

# ── in a journal ─────────────────────────────────────────────────────────────────────────────────────────

TEXTS = [b"one " * 30, b"two " * 30, b"three " * 30]


NAME = "1.txn"


@cache
def journaled() -> Site:
    """Three groups, and a fourth that proves them durable, in one journal."""
    site = Site()
    store = site.open()
    for text in TEXTS:
        store.ledger(1).append(text)
    StoreInternals(store).seal()
    site.disk.kill()
    return site


GROUPS = range(4096, 4 * 4096, 4096)
PROVEN = {
    *range(GROUPS.start, GROUPS.stop, 203),
    *(start + offset for start in GROUPS for offset in (*range(0, 220, 5), *range(4096 - 80, 4096, 3))),
}


@pytest.mark.sampled(one_of=6)
@pytest.mark.parametrize("offset", sorted(PROVEN))
def test_a_flipped_bit_in_a_proven_group_is_refused_with_file_and_offset(offset: int) -> None:
    site = Site(disk=journaled().disk.copy())
    site.flip(f"{JOURNAL}/{NAME}", offset)
    before = site.disk.image()
    with pytest.raises(CorruptionError) as caught:
        site.open()
    assert caught.value.file == NAME
    # The end of the sound part: in the damaged group, or after the header if the first group is damaged.
    assert offset - 8192 < caught.value.offset <= offset
    assert site.disk.image() == before
    site.flip(f"{JOURNAL}/{NAME}", offset)
    assert payloads(site.after_kill(), 1) == TEXTS


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("offset", [*range(4096, 4096 + 300, 7), *range(8192 - 80, 8192, 7)])
def test_a_flipped_bit_in_the_last_group_is_a_torn_tail_which_is_kept_aside(offset: int) -> None:
    site = Site()
    site.open().ledger(1).append(TEXTS[0])
    site.disk.kill()
    site.flip(f"{JOURNAL}/{NAME}", offset)
    journal = site.bytes_of(f"{JOURNAL}/{NAME}")
    store = site.open()
    # A record with a right digest is kept, with or without its seal.
    found = payloads(store, 1) if store.ledgers() else []
    assert found in ([], TEXTS[:1])
    assert len(store.opened.torn) == 1
    torn = store.opened.torn[0]
    assert torn.saved_as is not None
    assert site.bytes_of(torn.saved_as) == journal[torn.offset : 8192]
    assert store.ledger(1).append(b"on") == len(found)


KEY_SIZE = 44
PASSWORDS = {1: b"", 5: b"five", 17: b"seventeen"}


@cache
def keyed(*ledger_ids: int) -> Site:
    """Return a disk whose last group, which nothing proves durable, begins a journal with its ledgers'
    keys."""
    site = Site()
    store = site.open()
    store.ledger(1).append(b"one")
    store.ledger(17, password=PASSWORDS[17]).append(b"one")
    StoreInternals(store).seal()
    store = site.after_kill()
    with StoreInternals(store).commit_held():
        waiting = [store.ledger(one, password=PASSWORDS[one]).submit(b"last") for one in ledger_ids]
    StoreInternals(store).flush()
    assert [one.result(0) for one in waiting]
    site.disk.kill()
    return site


@pytest.mark.sampled(one_of=6)
@pytest.mark.parametrize("ledger_ids", [(1,), (1, 5)], ids=["known", "known and new"])
@pytest.mark.parametrize("place", range(KEY_SIZE))
def test_a_flipped_bit_in_an_unproven_key_locks_no_writer_out(
    ledger_ids: tuple[int, ...], place: int
) -> None:
    # 1 and 17 differ in the flipped bit, so one ledger's key may look like the other's.
    offset = 4096 + KEY_SIZE * (len(ledger_ids) - 1) + place
    site = Site(disk=keyed(*ledger_ids).disk.copy())
    name = f"{JOURNAL}/{max(site.names(JOURNAL, '.txn'), key=lambda one: int(one.split('.')[0], 16))}"
    site.flip(name, offset)
    for _ in range(2):
        store = site.open()
        for ledger_id, password in PASSWORDS.items():
            ledger = store.ledger(ledger_id, password=password)
            assert ledger.append(b"on") == len(payloads(store, ledger_id)) - 1
            with pytest.raises(Unauthorized):
                store.ledger(ledger_id, password=b"another").append(b"x")
        site.checkpoint(store)
        site.disk.kill()


def test_damage_before_the_mark_does_not_matter() -> None:
    site = Site(replace(SMALL, journal_max_backups=5))
    store = site.open()
    for text in TEXTS:
        store.ledger(1).append(text)
    site.checkpoint(store)
    store.ledger(1).append(b"behind the mark")
    site.disk.kill()
    for offset in (4100, 4200, 8192 + 60):
        site.flip(f"{JOURNAL}/{NAME}", offset)
    assert payloads(site.open(), 1) == [*TEXTS, b"behind the mark"]


# ── in an entry log ──────────────────────────────────────────────────────────────────────────────────────


RECORD_SIZE = 40 + len(TEXTS[1])


@cache
def logged() -> Site:
    site = Site()
    store = site.open()
    for text in TEXTS:
        store.ledger(1).append(text)
    site.checkpoint(store)
    site.disk.kill()
    return site


@pytest.mark.sampled(one_of=6)
@pytest.mark.parametrize("number", range(RECORD_SIZE))
def test_a_flipped_bit_in_a_log_damages_one_entry_only(number: int) -> None:
    site = Site(disk=logged().disk.copy())
    place = site.bytes_of(f"{LEDGERS}/0.log").index(TEXTS[1]) - 40
    site.flip(f"{LEDGERS}/0.log", place + number)
    store = site.open()
    ledger = store.ledger(1)
    with pytest.raises(EntryUnreadable) as caught:
        ledger.read(1)
    assert (caught.value.ledger_id, caught.value.entry_id) == (1, 1)
    assert (caught.value.file, caught.value.offset) == ("0.log", place)
    assert [ledger.read(0).payload, ledger.read(2).payload] == [TEXTS[0], TEXTS[2]]
    assert ledger.append(b"writing goes on") == 3


@pytest.mark.parametrize("damaged", [0, 1, 63, 64, 65, 500, 998, 999])
def test_sequential_reading_stops_right_at_the_damage(damaged: int) -> None:
    site = Site(replace(SMALL, memtable_size_max=8 << 20))
    store = site.open()
    texts = [b"%7d" % number * 100 for number in range(1000)]
    store.ledger(1).append_many(texts)
    site.checkpoint(store)
    log = f"{LEDGERS}/0.log"
    site.flip(log, site.bytes_of(log).index(texts[damaged]) + 350)
    ledger = site.after_kill().ledger(1)
    found = ledger.entries()
    assert [next(found).payload for _ in range(damaged)] == texts[:damaged]
    with pytest.raises(EntryUnreadable) as caught:
        next(found)
    assert caught.value.entry_id == damaged
    if damaged < 999:
        assert list(ledger.payloads(damaged + 1)) == texts[damaged + 1 :]


def test_a_ledger_whose_last_entry_is_damaged_is_read_and_takes_no_append_that_could_be_wrong() -> None:
    # An append needs the ledger's length, which is in the damaged entry.
    site = Site(disk=logged().disk.copy())
    log = f"{LEDGERS}/0.log"
    site.flip(log, site.bytes_of(log).index(TEXTS[2]))
    store = site.open()
    assert store.ledger(1).last_entry_id == 2
    assert store.ledger(1).read(1).payload == TEXTS[1]
    with pytest.raises(EntryUnreadable, match="entry 2 of ledger 1"):
        store.ledger(1).append(b"more")
    assert store.ledger(2).append(b"another ledger") == 0


# ── the index in LMDB ────────────────────────────────────────────────────────────────────────────────────

QUIET = StoreConfig(
    checkpoint_interval_s=None,
    idle_seal_s=None,
    entry_size_max=8 << 10,
    group_size_max=64 << 10,
    journal_size=1 << 20,
    entry_log_size_max=8192,
    index_size_max=16 << 20,
)


def fill(store: Store) -> None:
    """Create ledgers over several logs: one with a gap, one with an entry in two logs, one still in a
    journal."""
    for number in range(3):
        store.ledger(number).append_many([b"%d-%d" % (number, at) * 50 for at in range(40)])
        store.checkpoint()
    last = store.ledger(1).read(39)
    store.add(replace(last, entry_id=45))
    store.add(replace(last, entry_id=20, payload=b"added again"))
    store.checkpoint()
    store.ledger(2).append(b"journaled")


def content(store: Store) -> dict[int, list[Entry | None]]:
    """Return the result of reading each entry by itself, missing ones included."""
    return {number: [_entry(store.ledger(number), at) for at in range(50)] for number in store.ledgers()}


def _entry(ledger: Ledger, number: int) -> Entry | None:
    try:
        return ledger.read(number)
    except NoSuchEntry:
        return None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store as a killed process leaves it."""
    with open_store(tmp_path / "live", QUIET) as store:
        fill(store)
        copy_running(tmp_path / "live", tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def expected(path: Path, tmp_path: Path) -> dict[int, list[Entry | None]]:
    shutil.copytree(path, tmp_path / "good")
    with open_store(tmp_path / "good", QUIET) as store:
        assert store.opened.index is IndexFound.GOOD
        found = content(store)
    assert sorted(found) == [0, 1, 2]
    assert [len([one for one in entries if one]) for entries in found.values()] == [40, 41, 41]
    return found


def index_of(path: Path) -> Path:
    return path / LEDGERS / "index"


def data_of(path: Path) -> Path:
    return index_of(path) / "data.mdb"


def cut(path: Path, size: int) -> None:
    data_of(path).write_bytes(data_of(path).read_bytes()[:size])


def empty(path: Path) -> None:
    for one in index_of(path).iterdir():
        one.unlink()


def replace_by_a_file(path: Path) -> None:
    shutil.rmtree(index_of(path))
    index_of(path).write_bytes(b"?")


def flip_each_page(path: Path) -> None:
    data = bytearray(data_of(path).read_bytes())
    for at in range(2 * 4096 + 1000, len(data), 4096):
        data[at] ^= 1
    data_of(path).write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: shutil.rmtree(index_of(path)),
    "an empty directory": empty,
    "a file in its place": replace_by_a_file,
    "an empty file": lambda path: cut(path, 0),
    "a file cut in its first page": lambda path: cut(path, 100),
    "a file cut behind two pages": lambda path: cut(path, 8192),
    "a file cut in its last page": lambda path: cut(path, data_of(path).stat().st_size - 1),
    "zeros": lambda path: data_of(path).write_bytes(bytes(data_of(path).stat().st_size)),
    "something else": lambda path: data_of(path).write_bytes(b"no index " * 9000),
    "a flipped bit in each page": flip_each_page,
    "no checksums": lambda path: (index_of(path) / "sums").unlink(),
    "checksums that are cut": lambda path: (index_of(path) / "sums").write_bytes(b"LSPS"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_missing_index_is_rebuilt_and_reads_are_identical(
    path: Path, expected: dict[int, list[Entry | None]], damage: str
) -> None:
    DAMAGES[damage](path)
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.REBUILT
        assert content(store) == expected
        store.ledger(2).append(b"and on")
        store.checkpoint()
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.GOOD
        assert store.ledger(2).read(41).payload == b"and on"


def test_damage_in_the_index_is_reported_and_the_damaged_index_is_kept_aside(path: Path) -> None:
    flip_each_page(path)
    rotten = data_of(path).read_bytes()
    with open_store(path, QUIET) as store:
        assert [finding[:13] for finding in store.opened.findings] == ["IDX-004 index"]
    assert (path / LEDGERS / "index.damaged" / "data.mdb").read_bytes() == rotten


def test_an_index_older_than_the_mark_is_rebuilt(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path, QUIET) as store:
        store.ledger(1).append_many([b"old"] * 10)
    shutil.copytree(index_of(path), tmp_path / "old index")
    with open_store(path, QUIET) as store:
        store.ledger(1).append_many([b"new"] * 10)
    shutil.rmtree(index_of(path))
    shutil.copytree(tmp_path / "old index", index_of(path))
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.REBUILT
        assert list(store.ledger(1).payloads()) == [b"old"] * 10 + [b"new"] * 10


@pytest.mark.parametrize("damage", ["older", "cut", "flipped"])
def test_a_mark_that_is_older_than_the_index_or_damaged_is_taken_from_it(tmp_path: Path, damage: str) -> None:
    path, mark = tmp_path / "store", tmp_path / "store" / LEDGERS / "lastMark"
    with open_store(path, replace(QUIET, journal_max_backups=9)) as store:
        store.ledger(1).append_many([b"old"] * 10)
    old = mark.read_bytes()
    with open_store(path, replace(QUIET, journal_max_backups=9)) as store:
        store.ledger(1).append_many([b"new"] * 10)
    new = mark.read_bytes()
    mark.write_bytes({"older": old, "cut": new[:40], "flipped": new[:9] + b"\x55" + new[10:]}[damage])
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.AHEAD
        assert store.opened.records_replayed == 0
        assert list(store.ledger(1).payloads()) == [b"old"] * 10 + [b"new"] * 10


def test_without_mark_and_index_a_store_is_refused(path: Path) -> None:
    (path / LEDGERS / "lastMark").write_bytes(b"?" * 68)
    shutil.rmtree(index_of(path))
    with pytest.raises(CorruptionError, match="the index cannot stand in for it"):
        open_store(path, QUIET)


@pytest.mark.parametrize("lost", ["missing", "short"])
def test_without_the_index_a_lost_last_log_is_still_noticed(path: Path, lost: str) -> None:
    shutil.rmtree(index_of(path))
    logs = (path / LEDGERS).glob("*.log")
    last = max(logs, key=lambda one: int(one.stem, 16))
    data = last.read_bytes()
    last.unlink()
    if lost == "short":
        last.write_bytes(data[:4100])
    for _ in range(2):
        with pytest.raises(CorruptionError) as caught:
            open_store(path, QUIET)
        assert (caught.value.file, caught.value.finding) == (last.name, "ELG-005")


def test_without_the_index_a_damaged_length_loses_one_entry_and_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path, replace(QUIET, entry_log_size_max=1 << 20)) as store:
        store.ledger(1).append_many(TEXTS)
    log = path / LEDGERS / "0.log"
    data = bytearray(log.read_bytes())
    data[data.index(TEXTS[1]) - 38] ^= 0x40
    log.write_bytes(data)
    shutil.rmtree(index_of(path))
    with open_store(path, QUIET) as store:
        ledger = store.ledger(1)
        assert any("0.log@" in finding for finding in store.opened.findings)
        assert [ledger.read(0).payload, ledger.read(2).payload] == [TEXTS[0], TEXTS[2]]
        with pytest.raises(EntryUnreadable):
            ledger.read(1)
