"""Scenarios in which a bookie loses or falsifies acknowledged data, and what this store does instead.

Each test says first what BookKeeper does in the scenario, at the commit that this store was modelled on, and
would fail if the store did the same. The numbers are those of our list of its weaknesses.
"""

from __future__ import annotations

import errno
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sampling import every
from stepped_store import JOURNAL, LEDGERS, SMALL, Site, payloads
from store_internals import StoreInternals, confirm

from recovery.crashlab import FailedSync, Lasting, Refused, ShortWrite, Verb, When
from storage.disk import filenames
from storage.entry.digest import master_key
from storage.entry.format import IDS
from storage.entry.model import DigestType
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.record_format import CRC32C_OVERHEAD
from storage.entrylog import format as entrylog_format
from storage.errors import (
    CorruptionError,
    DiskFull,
    EntryUnreadable,
    LedgerFenced,
    StoreFailed,
    Unauthorized,
)
from storage.journal import format as journal_format
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from concurrent.futures import Future

    from recovery.crashlab import Fault, Operation
    from storage.ledger import Ledger
    from storage.store import Store

LOG_SYNC = When(verb=Verb.SYNC, name="*.log*")


def append(ledger: Ledger, *texts: bytes) -> None:
    for text in texts:
        ledger.append(text)


def journal_of(site: Site, number: int = -1) -> str:
    """Return the path of a journal with records, by default the newest."""
    names = sorted(site.names(JOURNAL, ".txn"), key=lambda name: int(name.partition(".")[0], 16))
    return f"{JOURNAL}/{names[number]}"


def refused(site: Site) -> CorruptionError:
    """Return the error that refuses an opening, after checking that nothing was changed."""
    site.disk.kill()
    before = site.disk.image()
    with pytest.raises(CorruptionError) as caught:
        site.open()
    assert site.disk.image() == before
    return caught.value


# ── F1, F2: metadata of a ledger is lost ─────────────────────────────────────────────────────────────────


def change_metadata(change: str, ledger: Ledger) -> None:
    if change == "fence":
        ledger.fence()
    else:
        confirm(ledger, 5)


def assert_metadata(change: str, ledger: Ledger) -> None:
    """Check that the fence holds, or that the confirmation is kept."""
    if change == "fence":
        assert ledger.is_fenced
        with pytest.raises(LedgerFenced):
            ledger.append(b"refused")
    else:
        assert (ledger.explicit_lac, ledger.last_add_confirmed) == (5, 5)


CHANGES = pytest.mark.parametrize("change", ["fence", "last add confirmed"])


@CHANGES
@pytest.mark.parametrize("end", ["closed", "checkpoint and power cut", "checkpoint, kill and index lost"])
def test_f1_metadata_is_not_lost_by_a_checkpoint_without_entries(change: str, end: str) -> None:
    # A bookie's checkpoint returns early when its write cache is empty, without writing what it knows of its
    # ledgers, and moves its mark over the fence: it is gone after a graceful shutdown.
    site = Site()
    store = site.open()
    append(store.ledger(1), b"first")
    site.checkpoint(store)
    mark = site.mark()
    change_metadata(change, store.ledger(1))
    if end == "closed":
        store.close()
    else:
        site.checkpoint(store)
    assert site.mark() > mark
    if "index" in end:
        site.disk.kill()
        site.remove(f"{LEDGERS}/index")
        store = site.open()
    else:
        store = site.after_power_cut()
    assert store.opened.records_replayed == 0
    assert_metadata(change, store.ledger(1))


@CHANGES
@pytest.mark.parametrize("crash", ["kill", "power cut"])
def test_f2_metadata_of_a_ledger_without_entries_survives_a_crash(change: str, crash: str) -> None:
    # A bookie logs the fence and not the ledger's key. Its replay takes the record of a ledger that it does
    # not know for one of a deleted ledger: no ledger, no fence, and the writer goes on adding.
    site = Site()
    change_metadata(change, site.open().ledger(9, password=b"secret"))
    for _ in range(2):
        store = site.after_kill() if crash == "kill" else site.after_power_cut()
        assert store.ledgers() == [9]
        assert_metadata(change, store.ledger(9, password=b"secret"))
        with pytest.raises(Unauthorized):
            store.ledger(9).fence()


@CHANGES
def test_f2_a_bookie_would_keep_it_too(change: str) -> None:
    # The key precedes the record in the same journal, because a bookie's replay needs it there.
    site = Site()
    change_metadata(change, site.open().ledger(9, password=b"secret"))
    record_ids = IDS.pack(9, journal_format.FENCE if change == "fence" else journal_format.EXPLICIT_LAC)
    data = site.bytes_of(journal_of(site))
    key = journal_format.encode_ledger_key(9, master_key(b"secret"))
    assert 0 < data.index(key) < data.index(record_ids)


# ── F3: a failed flush is forgotten ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("newer", [(), (b"newer",)], ids=["nothing newer", "newer adds"])
@pytest.mark.parametrize(
    "fault", [FailedSync(LOG_SYNC), Refused(LOG_SYNC, errno.ENOSPC)], ids=["failed sync", "no space"]
)
def test_f3_a_failed_flush_is_not_forgotten(fault: Fault, newer: tuple[bytes, ...]) -> None:
    # A bookie keeps entries that it failed to flush in a second cache that the next checkpoint ignores, and
    # moves its mark over it: after a crash the acknowledged entry is gone, with and without newer adds.
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    append(ledger, b"first")
    site.checkpoint(store)
    append(ledger, b"flushed in vain")
    site.disk.plant(fault)
    site.checkpoint(store)
    append(ledger, *newer)
    site.workers.elapse()
    site.checkpoint(store)
    assert payloads(site.after_power_cut(), 1) == [b"first", b"flushed in vain", *newer]


def test_f3_the_mark_waits_for_the_table_that_failed() -> None:
    # The same: while the flush is being tried again, a bookie's mark has already moved.
    site = Site()
    store = site.open()
    append(store.ledger(1), b"first")
    site.checkpoint(store)
    before = site.mark()
    append(store.ledger(1), b"second")
    site.disk.plant(Refused(LOG_SYNC, errno.ENOSPC))
    site.checkpoint(store)
    assert site.mark() == before
    site.workers.elapse()
    assert site.mark() > before


# ── F4, F5: answers during the roll of a journal ─────────────────────────────────────────────────────────

ROLLING = replace(SMALL, journal_size=160 << 10, memtable_size_max=4 << 20)


def test_f4_no_answer_across_a_roll_precedes_the_sync_of_its_journal() -> None:
    # A bookie syncs only the newest file before it answers: entries of the file before are acknowledged while
    # they wait for a later sync of their own file. Here a power cut strikes at every single answer.
    site = Site(ROLLING)
    store = site.open()
    ledger = store.ledger(1)
    texts = [bytes([number]) * (60 << 10) for number in range(6)]
    survivors: list[tuple[int, list[bytes]]] = []

    def cut(answered: Future[int]) -> None:
        twin = Site(ROLLING, site.disk.copy())
        survivors.append((answered.result(), payloads(twin.after_power_cut(), 1)))

    for text in texts:
        ledger.submit(text).add_done_callback(cut)
    site.workers.run()
    site.workers.elapse()
    assert len(site.names(JOURNAL, ".txn")) > 2
    assert [number for number, _ in survivors] == list(range(6))
    for number, survived in survivors:
        assert survived[: number + 1] == texts[: number + 1]


def test_f4_no_journal_is_written_to_while_the_one_before_waits_for_a_sync() -> None:
    # The same, as an order of operations: a bookie's are write A, write B, sync B, answer A, sync A.
    site = Site(ROLLING)
    store = site.open()
    waiting: list[str] = []
    written: list[str] = []

    def look(operation: Operation) -> None:
        # A file is called by the name under which it was created. It begins with the header, not with a
        # group.
        if operation.verb is Verb.WRITE and ".txn" in operation.path and operation.offset:
            assert not waiting
            waiting.append(operation.path)
            written.append(operation.path)
        elif operation.verb is Verb.SYNC and operation.path in waiting:
            waiting.remove(operation.path)

    site.disk.watch(look)
    store.ledger(1).append_many([b"x" * (60 << 10)] * 12)
    assert not waiting
    assert len(set(written)) > 3


ROLL_STEPS = {
    "sync of a group": When(verb=Verb.SYNC, name="*.txn.draft", nth=2),
    "sync of the directory": When(verb=Verb.SYNC_DIRECTORY, name="/journal/current"),
}


@pytest.mark.parametrize("step", ROLL_STEPS)
def test_f5_a_failed_sync_at_a_roll_is_answered_as_a_failure(step: str) -> None:
    # A bookie ignores the error of the sync that closes a full journal, and answers with success.
    site = Site(ROLLING)
    store = site.open()
    ledger = store.ledger(1)
    text = b"x" * (50 << 10)
    answered = [ledger.append(text)]
    site.disk.plant(FailedSync(ROLL_STEPS[step], seed=3))
    for _ in range(20):
        with suppress(StoreFailed):
            answered.append(ledger.append(text))
    assert len(answered) < 20
    with pytest.raises(StoreFailed):
        ledger.append(text)
    assert [entry.entry_id for entry in ledger.entries()] == answered
    survived = payloads(site.after_power_cut(), 1)
    assert survived[: len(answered)] == [text] * len(answered)


# ── F6, F7, F8, F21: garbage collection ──────────────────────────────────────────────────────────────────


def with_a_dead_ledger() -> tuple[Site, Store]:
    """Log 0 has entries of ledger 1, which lives, and of ledger 2, which is deleted."""
    site = Site()
    store = site.open()
    store.ledger(1).append_many([b"entry %d." % number for number in range(5)])
    store.ledger(2).append_many([b"deleted"] * 5)
    site.checkpoint(store)
    store = site.after_kill()  # so that the log has no ledgers map, and is not the last one
    store.ledger(2).delete()
    store.ledger(3).append(b"later")
    site.checkpoint(store)
    return site, store


def damage_length(site: Site, payload: bytes) -> None:
    """Flip a bit of the length word of the record with this payload."""
    data = site.bytes_of(f"{LEDGERS}/0.log")
    site.flip(f"{LEDGERS}/0.log", data.index(payload) - CRC32C_OVERHEAD - LENGTH_WORD_SIZE + 1)


@pytest.mark.parametrize("number", range(5))
def test_f6_f7_a_log_with_a_damaged_length_is_not_removed(number: int) -> None:
    """A bookie's scan ends silently at the damaged length, and the log is taken for read to its end.

    All later entries are lost with the log. If the first length is damaged, the log is even taken for one
    without living ledgers.
    """
    site, store = with_a_dead_ledger()
    damage_length(site, b"entry %d." % number)
    store = site.after_kill()
    moved, removed = StoreInternals(store).move(0), StoreInternals(store).remove(0)
    assert moved.why_kept is not None
    assert removed.logs_removed == ()
    assert [one.log_id for one in removed.why_kept] == [0]
    assert "0.log" in site.names(LEDGERS)
    store = site.after_power_cut()
    for other in set(range(5)) - {number}:
        assert store.ledger(1).read(other).payload == b"entry %d." % other


@pytest.mark.parametrize("log_id", [0x9, 0xA, 0x1F4])
def test_f8_a_compaction_that_was_interrupted_is_complete_after_a_restart_for_any_log_id(log_id: int) -> None:
    """A bookie makes the final name of the log of a decimal id, and never removes log and leftover.

    It happens for all ids from 10 on.
    """
    site = Site()
    store = site.open()
    # A log of another store, so that ids continue after it.
    site.put(
        f"{LEDGERS}/{log_id - 1:x}.log",
        entrylog_format.encode_header(entrylog_format.Origin(b"x" * 16, 1, None)),
    )
    store.ledger(1).append_many([b"lives"] * 3)
    store.ledger(2).append(b"dead")
    site.checkpoint(store)
    assert f"{log_id:x}.log" in site.names(LEDGERS)
    store.ledger(2).delete()
    site.checkpoint(store)
    store = site.after_kill()
    store.ledger(3).append(b"later")
    site.checkpoint(store)
    StoreInternals(store).move(log_id)
    store = site.after_power_cut()
    StoreInternals(store).remove(log_id)
    store = site.after_power_cut()
    assert f"{log_id:x}.log" not in site.names(LEDGERS)
    assert site.names(LEDGERS, ".compacted") == []
    assert payloads(store, 1) == [b"lives"] * 3


@pytest.mark.parametrize("index", ["kept", "lost"])
def test_f21_compaction_of_an_older_log_does_not_bring_an_obsolete_copy_back(index: str) -> None:
    """A bookie's compaction does not ask the index, which then points at the copy of the older entry."""
    site = Site()
    store = site.open()
    store.ledger(1).append_many([b"first", b"other"])
    site.checkpoint(store)
    store = site.after_kill()
    entry = store.ledger(1).read(0)
    store.add(replace(entry, payload=b"again"))
    site.checkpoint(store)
    assert StoreInternals(store).move(0).entries_moved == 1
    assert StoreInternals(store).remove(0).logs_removed == (0,)
    store = site.after_power_cut()
    if index == "lost":
        site.disk.kill()
        site.remove(f"{LEDGERS}/index")
        store = site.open()
        assert store.opened.index is IndexFound.REBUILT
    assert payloads(store, 1) == [b"again", b"other"]


# ── F9, F10, F11: damage in a journal ────────────────────────────────────────────────────────────────────


def site_with_groups() -> tuple[Site, list[bytes]]:
    """Return a disk after a crash, with three entries, each in a group of its own, in one journal and in no
    log."""
    site = Site()
    store = site.open()
    texts = [b"entry %d " % number * 20 for number in range(3)]
    append(store.ledger(1), *texts)
    StoreInternals(store).seal()
    return site, texts


def offset_of(site: Site, text: bytes) -> int:
    """Return the offset in the journal of the length word of the entry with that payload."""
    return site.bytes_of(journal_of(site)).index(text) - 4 - 36


DAMAGES = {
    "length zeroed": (0, bytes(4)),
    "length too large": (0, b"\x7f\xff\xff\xff"),
    "length a little larger": (3, b"\xff"),
    "negative length": (0, b"\xff\xff\xff\xff"),
    "too short for an entry": (0, b"\x00\x00\x00\x10"),
    "shorter than two ids": (0, b"\x00\x00\x00\x05"),
    "payload": (60, b"?"),
    "ledger id": (10, b"\x09"),
    "last add confirmed": (24, b"\x01"),
}


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("damage", DAMAGES)
def test_f9_damage_in_a_journal_is_not_taken_for_its_end(damage: str, number: int) -> None:
    # A bookie's records carry no checksum: a zeroed or oversized length ends the file silently, a flipped
    # payload bit is replayed, and the mark then moves behind whatever was dropped.
    site, texts = site_with_groups()
    journal = journal_of(site)
    place = offset_of(site, texts[number])
    data = site.bytes_of(journal)
    offset, instead = DAMAGES[damage]
    site.put(journal, data[: place + offset] + instead + data[place + offset + len(instead) :])
    found = refused(site)
    assert found.file == journal.rpartition("/")[2]
    assert found.offset <= place
    assert f"{found.file}@{found.offset}" in str(found)


@pytest.mark.sampled(one_of=4)
@pytest.mark.parametrize("bit", range(64))
def test_f9_a_flipped_bit_in_a_journal_s_magic_or_version_loses_no_record(bit: int) -> None:
    # A bookie with one bit of the magic flipped reads the file as one without a header: out of memory with a
    # small heap, silently empty with a large one. Here the seals tell whose it is and what it holds.
    site, texts = site_with_groups()
    journal = journal_of(site)
    data = bytearray(site.bytes_of(journal))
    data[bit // 8] ^= 1 << bit % 8
    site.put(journal, bytes(data))
    assert payloads(site.after_kill(), 1) == texts


def test_f10_a_damaged_record_never_overwrites_a_good_entry() -> None:
    # A bookie replays whatever frames, and the last write of an id wins: the damaged copy replaces the good
    # one that the entry log has long held.
    site = Site()
    store = site.open()
    append(store.ledger(1), b"good" * 10)
    entry = store.ledger(1).read(0)
    site.checkpoint(store)
    store.add(replace(entry, payload=b"oops" * 10))
    site.disk.kill()
    journal = journal_of(site)
    data = site.bytes_of(journal)
    site.put(journal, data.replace(b"oops" * 10, b"oo?s" * 10))
    reopened = site.open()
    # Nothing proves the last group durable, so it may be torn: the damage is reported and the entry not
    # served.
    assert payloads(reopened, 1) == [b"good" * 10]
    assert len(reopened.opened.torn) == 1


def test_f10_a_damaged_record_that_was_proven_durable_is_refused() -> None:
    # The same, where the journal proves that the record had been good.
    site = Site()
    store = site.open()
    append(store.ledger(1), b"good" * 10)
    entry = store.ledger(1).read(0)
    site.checkpoint(store)
    store.add(replace(entry, payload=b"oops" * 10))
    append(store.ledger(1), b"more")
    site.disk.kill()
    site.put(journal_of(site), site.bytes_of(journal_of(site)).replace(b"oops" * 10, b"oo?s" * 10))
    assert refused(site).finding == "JRN-003"


@pytest.mark.parametrize("length", [1, 15, 16, 23, 24, 35, 36])
def test_f11_a_record_too_short_for_its_ids_is_damage(length: int) -> None:
    # A bookie throws an unchecked exception for it at every start, even when told to skip invalid records.
    site = Site()
    store = site.open()
    append(store.ledger(1), b"kept", b"torn" * 20)
    journal = journal_of(site)
    data = site.bytes_of(journal)
    place = data.index(b"torn" * 20) - 40
    site.put(journal, data[:place] + length.to_bytes(4, "big") + data[place + 4 :])
    reopened = site.after_kill()
    assert payloads(reopened, 1) == [b"kept"]
    assert len(reopened.opened.torn) == 1


@pytest.mark.parametrize("vouched", ["in the last group", "in a group that is vouched for"])
def test_f11_a_garbage_length_allocates_nothing(vouched: str) -> None:
    # A bookie allocates as much as the length word states before it checks the size of the file.
    site = Site()
    store = site.open()
    append(store.ledger(1), b"kept", b"torn" * 20)
    if "vouched" in vouched:
        append(store.ledger(1), b"behind")
    journal = journal_of(site)
    data = site.bytes_of(journal)
    place = data.index(b"torn" * 20) - 40
    site.put(journal, data[:place] + b"\x7f\xff\xff\xf0" + data[place + 4 :])
    site.disk.kill()
    tracemalloc.start()
    try:
        if "vouched" in vouched:
            refused(site)
        else:
            assert payloads(site.open(), 1) == [b"kept"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


# ── F12: digests are not verified ────────────────────────────────────────────────────────────────────────


def logged(*texts: bytes) -> tuple[Site, Store]:
    """Return a store whose entries are in entry log 0 only."""
    site = Site()
    store = site.open()
    append(store.ledger(1), *texts)
    site.checkpoint(store)
    return site, store


def damaged_log(site: Site, text: bytes, offset: int = 0) -> None:
    site.flip(f"{LEDGERS}/0.log", site.bytes_of(f"{LEDGERS}/0.log").index(text) + offset)


def test_f12_a_flipped_bit_in_a_log_is_not_served() -> None:
    # A bookie never compares a digest, neither on write nor on read, replay, compaction or scan: the damaged
    # payload is served.
    site, _ = logged(b"first " * 9, b"second " * 9, b"third " * 9)
    damaged_log(site, b"second")
    ledger = site.after_kill().ledger(1)
    with pytest.raises(EntryUnreadable) as caught:
        ledger.read(1)
    assert (caught.value.file, caught.value.entry_id) == ("0.log", 1)
    assert [ledger.read(0).payload, ledger.read(2).payload] == [b"first " * 9, b"third " * 9]


@pytest.mark.parametrize("verb", ["entries", "payloads", "follow"])
def test_f12_sequential_reading_verifies_each_digest(verb: str) -> None:
    # The same, for the ways of reading that a bookie has a read-ahead for.
    site, _ = logged(b"first " * 9, b"second " * 9, b"third " * 9)
    damaged_log(site, b"second")
    ledger = site.after_kill().ledger(1)
    found = iter(getattr(ledger, verb)())
    next(found)
    with pytest.raises(EntryUnreadable, match="entry 1 of ledger 1"):
        next(found)


def test_f12_a_rebuilt_index_knows_which_entries_are_damaged() -> None:
    # A bookie's rebuild of the index includes damaged entries, and reports none.
    site, _ = logged(b"first " * 9, b"second " * 9, b"third " * 9)
    damaged_log(site, b"second")
    site.remove(f"{LEDGERS}/index")
    store = site.after_kill()
    assert any(finding.startswith("ELG-003 0.log@") for finding in store.opened.findings)
    with pytest.raises(EntryUnreadable):
        store.ledger(1).read(1)
    assert store.ledger(1).read(2).payload == b"third " * 9


# ── F14: headers and maps are trusted ────────────────────────────────────────────────────────────────────


def sealed_site() -> Site:
    """Return a closed store with ledgers 1 and 2, so that its log has a ledgers map."""
    site = Site()
    store = site.open()
    append(store.ledger(1), b"one " * 9, b"uno " * 9)
    append(store.ledger(2), b"two " * 9)
    store.close()
    return site


def map_of(site: Site) -> int:
    header = entrylog_format.decode_header(site.bytes_of(f"{LEDGERS}/0.log")[: entrylog_format.HEADER_SIZE])
    assert isinstance(header, entrylog_format.LogHeader)
    assert header.map_offset > 0
    return header.map_offset


MAP_DAMAGES = {
    "a ledger is another": (20 + 4 + 7, 0x04),
    "a ledger's bytes": (20 + 4 + 15, 0x40),
    "the count": (20 + 3, 0x01),
    "its size": (3, 0x08),
}


@pytest.mark.parametrize("damage", MAP_DAMAGES)
@pytest.mark.parametrize("index", ["index kept", "index made again"])
def test_f14_a_damaged_ledgers_map_loses_no_entry(damage: str, index: str) -> None:
    # A bookie believes a map whose count agrees with the header, and its collector deletes a log by that map.
    site = sealed_site()
    offset, bits = MAP_DAMAGES[damage]
    data = bytearray(site.bytes_of(f"{LEDGERS}/0.log"))
    data[map_of(site) + offset] ^= bits
    site.put(f"{LEDGERS}/0.log", bytes(data))
    if index == "index made again":
        site.remove(f"{LEDGERS}/index")
    store = site.after_kill()
    assert store.ledgers() == [1, 2]
    assert payloads(store, 1) + payloads(store, 2) == [b"one " * 9, b"uno " * 9, b"two " * 9]
    store.close()
    assert "0.log" in site.names(LEDGERS)


@pytest.mark.parametrize("offset", [0, 5, 10, 19, 24, 40], ids=lambda offset: f"byte {offset}")
@pytest.mark.parametrize("index", ["index kept", "index made again"])
def test_f14_a_damaged_header_loses_no_entry(offset: int, index: str) -> None:
    # A bookie does not look at the magic, and one damaged field of it decides how the log is read.
    site = sealed_site()
    site.flip(f"{LEDGERS}/0.log", offset)
    if index == "index made again":
        site.remove(f"{LEDGERS}/index")
    store = site.after_kill()
    assert payloads(store, 1) + payloads(store, 2) == [b"one " * 9, b"uno " * 9, b"two " * 9]
    store.close()
    assert "0.log" in site.names(LEDGERS)


# ── F15, F16: names, and files rewritten in place ────────────────────────────────────────────────────────


def test_f15_a_power_cut_while_the_mark_is_written_leaves_a_complete_mark() -> None:
    # A bookie truncates lastMark and writes it in place: a crash in between leaves none, or half of one.
    site = Site()
    store = site.open()
    append(store.ledger(1), b"first")
    site.checkpoint(store)
    append(store.ledger(1), b"second")
    moments: list[Site] = []

    def look(operation: Operation) -> None:
        if filenames.LAST_MARK in operation.path + operation.target or operation.path == f"/{LEDGERS}":
            moments.append(Site(disk=site.disk.copy()))

    site.disk.watch(look)
    site.checkpoint(store)
    assert len(moments) >= 4
    for moment in moments:
        for fate in moment.disk.fates():
            after = Site(disk=moment.disk.copy())
            after.disk.power_cut(fate)
            assert after.trailer().generation in (1, 2)
            assert payloads(after.open(), 1) == [b"first", b"second"]


@pytest.mark.parametrize("fault", [ShortWrite, Refused], ids=["short write", "refused"])
def test_f15_no_journal_is_removed_before_the_new_mark(fault: type[ShortWrite | Refused]) -> None:
    # A bookie only logs that it could not write the mark, and deletes the journals that the old one needs:
    # the next start fails.
    site = Site()
    store = site.open()
    append(store.ledger(1), b"first")
    site.checkpoint(store)
    before = site.mark()
    append(store.ledger(1), *[b"x" * (50 << 10)] * 4)
    draft = When(verb=Verb.WRITE, name="lastMark*", lasting=Lasting.UNTIL_MENDED)
    site.disk.plant(fault(draft, errno.ENOSPC))
    journals = site.names(JOURNAL, ".txn")
    site.checkpoint(store)
    assert site.mark() == before
    assert site.names(JOURNAL, ".txn") == journals
    twin = Site(disk=site.disk.copy())
    assert len(payloads(twin.after_power_cut(), 1)) == 5
    site.disk.mend()
    site.workers.elapse()
    assert site.mark() > before
    assert len(payloads(site.after_power_cut(), 1)) == 5


@pytest.mark.sampled
def test_f16_a_power_cut_at_any_moment_loses_no_name_that_is_needed() -> None:
    # A bookie never syncs a directory: a power cut takes a synced file's name, and with it what was
    # acknowledged in a new journal, or what the mark says is in a new entry log.
    site = Site(replace(ROLLING, journal_size=140 << 10))
    store = site.open()
    answered: list[int] = []
    moments: list[tuple[int, Site]] = []
    site.disk.watch(lambda _: moments.append((len(answered), Site(ROLLING, site.disk.copy()))))
    ledger = store.ledger(1)
    for number in range(6):
        answered.append(ledger.append(bytes([number]) * (40 << 10)))
        if number % 2:
            site.checkpoint(store)
    store.close()
    assert len({name for _, moment in moments for name in moment.names(JOURNAL, ".txn")}) > 2
    for count, moment in every(3, moments):
        store = moment.after_power_cut()
        found = payloads(store, 1) if store.ledgers() else []
        assert [data[0] for data in found][:count] == answered[:count]


def test_f16_names_of_a_checkpoint_may_be_lost_in_any_combination() -> None:
    # The same, where a cut keeps some of the names and takes others: the index must never outlive its log.
    site = Site()
    store = site.open()
    append(store.ledger(1), b"first")
    moments: list[Site] = []

    def look(operation: Operation) -> None:
        if operation.verb in (Verb.SYNC_DIRECTORY, Verb.RENAME, Verb.REMOVE):
            moments.append(Site(disk=site.disk.copy()))

    site.disk.watch(look)
    site.checkpoint(store)
    assert len(moments) > 5
    for moment in moments:
        for fate in moment.disk.fates():
            after = Site(disk=moment.disk.copy())
            after.disk.power_cut(fate)
            assert payloads(after.open(), 1) == [b"first"]


def test_f16_the_last_journal_is_missed_when_it_is_gone() -> None:
    # A bookie only checks that the marked journal exists. Without its newest one it starts and reports
    # nothing.
    site = Site(ROLLING)
    store = site.open()
    append(store.ledger(1), *[b"x" * (60 << 10)] * 4)
    # The mark is before the newest journal, and its trailer names that journal.
    StoreInternals(store).freeze()
    append(store.ledger(1), *[b"y" * (60 << 10)] * 3)
    site.workers.run()
    newest = journal_of(site)
    assert site.mark().journal_id < site.trailer().newest_journal
    site.disk.kill()
    site.remove(newest)
    found = refused(site)
    assert (found.file, found.finding) == (newest.rpartition("/")[2], "MRK-002")


# ── F17, F19: fences that come too early, ledgers that come back ─────────────────────────────────────────


@pytest.mark.parametrize("texts", [(), (b"first",)], ids=["an empty ledger", "one with entries"])
def test_f17_a_fence_is_not_answered_before_it_is_durable(texts: tuple[bytes, ...]) -> None:
    # A bookie that has no entry to answer a fence with says so at once, without waiting for the journal, and
    # its client counts the ledger as fenced here.
    site = Site()
    store = site.open()
    append(store.ledger(1), b"so that there is a journal")
    bookie, key = store.bookie, master_key(b"")
    append(store.ledger(9), *texts)
    twin = Site(disk=site.disk.copy())
    bookie.fence(9, key)
    assert site.after_power_cut().ledger(9).is_fenced
    store = twin.open()
    twin.disk.plant(FailedSync(When(verb=Verb.SYNC, name="*.txn*")))
    with pytest.raises(StoreFailed):
        store.bookie.fence(9, key)
    assert not store.ledger(9).is_fenced


def with_rebuilt_index(site: Site) -> Store:
    """Return the store with its index rebuilt from logs and rows."""
    site.disk.kill()
    site.remove(f"{LEDGERS}/index")
    store = site.open()
    assert store.opened.index is IndexFound.REBUILT
    return store


def test_f19_metadata_changed_after_a_rebuild_of_the_index_is_not_lost() -> None:
    # A bookie's rebuild writes the ledgers under keys of another width, which its index goes on to prefer:
    # at each restart a ledger is again what the rebuild made of it, fenced and without a master key.
    site = Site()
    store = site.open()
    append(store.ledger(1), b"first")
    store.ledger(2, DigestType.MAC, b"secret").append(b"two")
    site.checkpoint(store)
    store = with_rebuilt_index(site)
    assert [store.ledger(number).is_fenced for number in (1, 2)] == [False, False]
    store.ledger(1).fence()
    store.ledger(3, DigestType.CRC32, b"third").append(b"three")
    for turn, end in enumerate(("closed", "killed", "closed", "killed"), 1):
        if end == "closed":
            store.close()
        store = site.after_kill()
        assert [store.ledger(number).is_fenced for number in (1, 2, 3)] == [True, False, False]
        digest_types = [store.ledger(number).digest_type for number in (1, 2, 3)]
        assert digest_types == [DigestType.CRC32C, DigestType.MAC, DigestType.CRC32]
        for number, password in ((2, b"secret"), (3, b"third")):
            assert store.ledger(number, password=password).append(b"more") == turn
            with pytest.raises(Unauthorized):
                store.ledger(number, password=b"wrong").append(b"refused")


@pytest.mark.parametrize(
    "deleted", ["before the index is made again", "behind it", "with a crash in between"]
)
def test_f19_a_deleted_ledger_does_not_come_back_at_each_restart(deleted: str) -> None:
    # The same: what the rebuild has written of a ledger is never deleted, and shows again after each restart.
    site = Site()
    store = site.open()
    append(store.ledger(1), b"first")
    append(store.ledger(2), b"second")
    site.checkpoint(store)
    if "before" in deleted:
        store.ledger(1).delete()
    store = with_rebuilt_index(site)
    if "before" not in deleted:
        assert store.ledgers() == [1, 2]
        store.ledger(1).delete()
        if "crash" in deleted:
            # Before any checkpoint, so the index has the ledger's locations and does not know of the delete.
            store = site.after_kill()
    for _ in range(3):
        assert store.ledgers() == [2]
        store.close()
        store = site.open()
    assert with_rebuilt_index(site).ledgers() == [2]


# ── F20: opening ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["I/O error", "no space"])
def test_f20_a_checkpoint_that_fails_while_opening_is_noticed(error: int) -> None:
    # A bookie only logs that the flush behind its replay failed, and starts to serve: together with F3 the
    # replayed entries are lost at the next crash.
    site = Site(replace(SMALL, memtable_size_max=1 << 20))
    store = site.open()
    texts = [bytes([number]) * (50 << 10) for number in range(8)]
    append(store.ledger(1), *texts)
    site.disk.kill()
    # The replay is larger than the table now.
    site.config = replace(SMALL, memtable_size_max=64 << 10)
    before = site.mark()
    site.disk.plant(Refused(When(verb=Verb.WRITE, name="*.log*", lasting=Lasting.UNTIL_MENDED), error))
    with pytest.raises(DiskFull if error == errno.ENOSPC else OSError):
        site.open()
    assert site.mark() == before
    site.disk.mend()
    assert payloads(site.after_power_cut(), 1) == texts


# ── F25: caches ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("warm", ["read", "entries", "not at all"])
def test_f25_no_cache_serves_an_older_copy_of_an_entry_added_again(warm: str) -> None:
    # A bookie's read cache keeps an entry that is added again: after a flush the same process serves the old
    # payload until it is evicted, or the bookie restarted.
    site, store = logged(*(b"old %d" % number for number in range(20)))
    ledger = store.ledger(1)
    old = list(ledger.entries())
    if warm == "read":
        assert all(ledger.read(entry.entry_id) == entry for entry in old * 3)
    elif warm == "entries":
        assert [list(ledger.entries()) for _ in range(3)] == [old] * 3
    new = replace(old[7], payload=b"new 7")
    expected = [*old[:7], new, *old[8:]]
    store.add(new)
    assert (ledger.read(7), list(ledger.entries())) == (new, expected)  # from the table
    site.checkpoint(store)
    assert (ledger.read(7), list(ledger.entries())) == (new, expected)  # from the log
    assert [ledger.read(7) for _ in range(5)] == [new] * 5
    assert list(site.after_power_cut().ledger(1).entries()) == expected


def test_a_ledger_s_key_is_in_each_journal_so_that_a_bookie_would_replay_its_entries() -> None:
    # F2 is about fences; the half of it that concerns entries: without a key in the same journal a bookie
    # takes a ledger it does not know for a deleted one.
    site = Site(ROLLING)
    store = site.open()
    append(store.ledger(7), *[b"x" * (60 << 10)] * 4)
    key = journal_format.encode_ledger_key(7, b"")[4:20]  # ids alone
    for name in site.names(JOURNAL, ".txn"):
        data = site.bytes_of(f"{JOURNAL}/{name}")
        assert 0 < data.index(key) < data.index(b"x" * 100)
