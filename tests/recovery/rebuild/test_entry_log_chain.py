"""The chain of entry logs, which tells without an index which logs count and up to where."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from stepped_store import LEDGERS, SMALL, Site, payloads
from store_internals import StoreInternals, log_header_checksum

from recovery.crashlab import RandomFate, Refused, SimulatedDisk, Tearing, Verb, When
from recovery.rebuild.entry_log_chain import EntryLogChain, follow_chain, in_creation_order
from storage.checkpoint.mark_format import Trailer
from storage.entry.position import LogPosition
from storage.entrylog import format as entrylog_format
from storage.entrylog.format import Origin
from storage.entrylog.writer import EntryLogWriter
from storage.errors import CorruptionError, NewerFormat, StoreError
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.store import Store

ROLLING = replace(SMALL, entry_log_size_max=32 << 10)
"""A log is full after three blocks, because the entries of one ledger in a checkpoint are never divided."""
BLOCK = b"x" * 9000
INDEX = f"{LEDGERS}/index"


def log(log_id: int) -> str:
    return f"{LEDGERS}/{log_id:x}.log"


def previous_of(site: Site, log_id: int) -> LogPosition | None:
    header = entrylog_format.decode_header(site.bytes_of(log(log_id)))
    assert isinstance(header, entrylog_format.LogHeader)
    assert header.origin is not None
    return header.origin.previous


def noted(site: Site) -> dict[int, int]:
    """The logs from the mark back, as their headers say."""
    ends, end = {}, site.trailer().log_end
    while end is not None:
        ends[end.log_id] = end.offset
        end = previous_of(site, end.log_id)
    return ends


def committed(store: Store) -> dict[int, int]:
    return dict(StoreInternals(store).index_state.log_ends)


def add_blocks(store: Store, count: int) -> None:
    """One entry for each of so many ledgers."""
    for ledger_id in range(1, count + 1):
        store.ledger(ledger_id).append(BLOCK)


def blocks(store: Store) -> int:
    return sum(payloads(store, ledger_id).count(BLOCK) for ledger_id in store.ledgers())


def interrupt(store: Store, *texts: bytes) -> None:
    """Begin a checkpoint of these entries, and end the process after it has written and before it syncs."""
    store.ledger(1).append_many(texts)
    StoreInternals(store).number_checkpoint()
    StoreInternals(store).step_checkpoint()


def three_runs() -> tuple[Site, list[bytes]]:
    """Logs 0, 1 and 2, none of them sealed, with an entry each."""
    site, texts = Site(), [b"zero", b"one", b"two"]
    store = site.open()
    for text in texts:
        store.ledger(1).append(text)
        site.checkpoint(store)
        store = site.after_kill()
    return site, texts


def without_index(site: Site) -> Store:
    site.disk.kill()
    site.remove(INDEX)
    store = site.open()
    assert store.opened.index is IndexFound.REBUILT
    return store


# ── what is noted ────────────────────────────────────────────────────────────────────────────────────────


def test_the_headers_name_every_log_that_counts_with_its_end() -> None:
    site = Site(ROLLING)
    store = site.open()
    for number in range(1, 7):
        add_blocks(store, number)
        site.checkpoint(store)
        assert noted(site) == committed(store)
        if number % 2 == 0:
            interrupt(store, BLOCK, BLOCK)
            store = site.after_power_cut() if number == 4 else site.after_kill()
    assert len(noted(site)) > 6


def test_the_first_log_has_no_predecessor() -> None:
    site, _ = three_runs()
    assert previous_of(site, 0) is None


def test_a_log_that_a_checkpoint_has_filled_is_noted_with_what_this_checkpoint_wrote() -> None:
    site = Site(ROLLING)
    store = site.open()
    store.ledger(1).append(BLOCK)
    site.checkpoint(store)
    before = committed(store)[0]
    add_blocks(store, 4)
    site.checkpoint(store)
    assert previous_of(site, 1) == LogPosition(0, committed(store)[0])
    assert committed(store)[0] > before


def test_a_checkpoint_that_only_rolls_notes_what_was_committed_before() -> None:
    site = Site(ROLLING)
    store = site.open()
    store.ledger(1).append_many([BLOCK] * 3)
    site.checkpoint(store)
    end = committed(store)[0]
    store.ledger(1).append(BLOCK)
    site.checkpoint(store)
    assert previous_of(site, 1) == LogPosition(0, end)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("nth", range(1, 9))
def test_only_the_committed_end_is_noted_of_a_log_that_an_error_has_ended(number: int, nth: int) -> None:
    site = Site(ROLLING)
    store = site.open()
    store.ledger(1).append(BLOCK)
    site.checkpoint(store)
    add_blocks(store, 9)
    site.disk.plant(Refused(When(verb=Verb.SYNC, name="*.log.draft", nth=nth), number))
    site.checkpoint(store)
    site.workers.elapse()
    assert noted(site) == committed(store)
    assert min(noted(site)) == 0
    assert blocks(without_index(site)) == 10


def test_a_log_that_an_error_has_ended_before_its_first_commit_is_not_noted() -> None:
    site = Site(ROLLING)
    store = site.open()
    add_blocks(store, 5)
    # One for each log's header, one for the first one's entries and two for its map; then for the second's.
    site.disk.plant(Refused(When(verb=Verb.SYNC, name="*.log.draft", nth=6), errno.EIO))
    site.checkpoint(store)
    assert committed(store) == noted(site)
    assert previous_of(site, min(noted(site))) is None
    assert min(noted(site)) > 1
    store = without_index(site)
    assert blocks(store) == 5
    assert {"0.log", "1.log"} <= set(store.opened.removed)


# ── the index made again ─────────────────────────────────────────────────────────────────────────────────


def test_the_ends_of_a_rebuilt_index_are_those_of_the_lost_one() -> None:
    site = Site(ROLLING)
    store = site.open()
    for number in (1, 5, 2):
        add_blocks(store, number)
        site.checkpoint(store)
    state = StoreInternals(store).index_state
    assert StoreInternals(without_index(site)).index_state == state


def test_torn_records_after_the_end_of_a_log_are_no_finding() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"one")
    site.checkpoint(store)
    end = -(-committed(store)[0] // 4096) * 4096
    interrupt(store, *[bytes([65 + number]) * 3000 for number in range(9)])
    store = site.after_kill()
    data = bytearray(site.bytes_of(log(0)))
    assert len(data) > end + 8192
    data[end : end + 4096] = bytes(4096)  # the first sector after the end has not reached the disk
    site.put(log(0), bytes(data))
    site.checkpoint(store)
    store = without_index(site)
    assert committed(store).keys() == {0, 1}
    assert store.opened.findings == ()
    assert len(payloads(store, 1)) == 10


@pytest.mark.parametrize("tearing", Tearing)
def test_no_torn_leftover_of_a_checkpoint_is_a_finding(tearing: Tearing) -> None:
    for seed in range(8):
        site = Site()
        store = site.open()
        store.ledger(1).append(b"one")
        site.checkpoint(store)
        interrupt(store, *[bytes([65 + number]) * 3000 for number in range(9)])
        site.disk.power_cut(RandomFate(seed, tearing))
        store = site.open()
        site.checkpoint(store)
        store = without_index(site)
        assert store.opened.findings == (), f"seed {seed}"
        assert len(payloads(store, 1)) == 10


def test_a_log_that_no_header_names_is_removed_and_not_indexed() -> None:
    site = Site(ROLLING)
    store = site.open()
    store.ledger(1).append_many([BLOCK] * 3)
    site.checkpoint(store)
    interrupt(store, BLOCK)
    assert "1.log" in site.names(LEDGERS)
    store = without_index(site)
    assert store.opened.removed == ("1.log",)
    assert committed(store).keys() == {0}
    assert payloads(store, 1) == [BLOCK] * 4


def test_rot_before_the_end_of_an_older_log_is_still_a_finding() -> None:
    site, texts = three_runs()
    site.flip(log(0), site.bytes_of(log(0)).index(texts[0]))
    assert any(one.startswith("ELG-003 0.log@") for one in without_index(site).opened.findings)


def test_an_older_log_that_loses_its_framing_before_its_end_is_a_finding() -> None:
    site, _ = three_runs()
    site.flip(log(0), 4096)  # the size of its only record
    assert any(one.startswith("ELG-004 0.log@4096") for one in without_index(site).opened.findings)


# ── what is missed ───────────────────────────────────────────────────────────────────────────────────────


def refused(site: Site) -> StoreError:
    """Return the error of an opening without the index. The logs stay as they are at each attempt."""
    site.disk.kill()
    site.remove(INDEX)
    before = {name: site.bytes_of(f"{LEDGERS}/{name}") for name in site.names(LEDGERS, ".log")}
    with pytest.raises(StoreError):
        site.open()
    site.disk.kill()
    with pytest.raises(StoreError) as caught:
        site.open()
    assert {name: site.bytes_of(f"{LEDGERS}/{name}") for name in site.names(LEDGERS, ".log")} == before
    assert "index" not in site.names(LEDGERS)
    return caught.value


def assert_missed(site: Site, name: str) -> None:
    found = refused(site)
    assert isinstance(found, CorruptionError)
    assert (found.file, found.finding) == (name, "ELG-005")


@pytest.mark.parametrize("log_id", [0, 1, 2])
def test_without_the_index_a_missing_log_is_named(log_id: int) -> None:
    site, _ = three_runs()
    site.remove(log(log_id))
    assert_missed(site, f"{log_id}.log")


@pytest.mark.parametrize("log_id", [0, 1, 2])
def test_without_the_index_a_log_that_ends_before_its_end_is_named(log_id: int) -> None:
    site, _ = three_runs()
    site.put(log(log_id), site.bytes_of(log(log_id))[: noted(site)[log_id] - 1])
    assert_missed(site, f"{log_id}.log")


@pytest.mark.parametrize(("source", "target"), [(2, 1), (2, 0), (1, 0)])
def test_a_copy_of_a_later_log_in_the_place_of_an_earlier_one_is_noticed(source: int, target: int) -> None:
    site, _ = three_runs()
    site.put(log(target), site.bytes_of(log(source)))
    assert_missed(site, f"{target}.log")


def test_another_store_s_log_in_the_place_of_ours_is_noticed() -> None:
    site, _ = three_runs()
    data = site.bytes_of(log(1))
    header = entrylog_format.encode_header(Origin(b"another store id", 1, None))
    site.put(log(1), header + data[len(header) :])
    assert_missed(site, "1.log")


def test_a_log_that_a_newer_version_wrote_is_left_alone() -> None:
    site, _ = three_runs()
    data = bytearray(site.bytes_of(log(1)))
    data[24:28] = (entrylog_format.OUR_VERSION + 1).to_bytes(4, "big")
    data[68:72] = log_header_checksum(bytes(data)).to_bytes(4, "big")
    site.put(log(1), bytes(data))
    assert isinstance(refused(site), NewerFormat)


# ── a header that is damaged ─────────────────────────────────────────────────────────────────────────────

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a flipped bit in the note": lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
    "no magic of ours": lambda data: data[:20] + b"?" + data[21:],
    "no magic": lambda data: b"?" + data[1:],
    "zeros": lambda data: bytes(1024) + data[1024:],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("log_id", [0, 1, 2])
def test_a_damaged_header_is_a_finding_and_loses_no_entry(log_id: int, damage: str) -> None:
    site, texts = three_runs()
    site.put(log(log_id), DAMAGES[damage](site.bytes_of(log(log_id))))
    store = without_index(site)
    [finding] = store.opened.findings
    assert finding.startswith(f"ELG-001 {log_id}.log@0: ")
    assert payloads(store, 1) == texts
    assert committed(store).keys() == {0, 1, 2}
    store.ledger(1).append(b"and on")
    site.checkpoint(store)
    assert payloads(site.after_power_cut(), 1) == [*texts, b"and on"]


def test_two_damaged_headers_before_a_damaged_one_are_both_findings() -> None:
    site, texts = three_runs()
    for log_id in (0, 1):
        site.flip(log(log_id), 60)
    store = without_index(site)
    assert [one[:13] for one in store.opened.findings] == ["ELG-001 1.log", "ELG-001 0.log"]
    assert payloads(store, 1) == texts


# ── the way itself ───────────────────────────────────────────────────────────────────────────────────────

STORE_ID = bytes(range(16))


def made(*logs: tuple[int, int, LogPosition | None], store_id: bytes = STORE_ID) -> SimulatedDisk:
    """Logs with these ids, generations and predecessors, and no entries."""
    disk = SimulatedDisk()
    for log_id, generation, previous in logs:
        EntryLogWriter.create(disk.root(), log_id, Origin(store_id, generation, previous)).close()
    return disk


def test_the_order_is_that_of_the_headers_if_ids_have_wrapped() -> None:
    disk = made((0x7FFFFFFE, 1, None), (0, 2, LogPosition(0x7FFFFFFE, 4000)), (1, 2, LogPosition(0, 4096)))
    found = follow_chain(disk.root(), Trailer(2, 0, LogPosition(1, 2000), 0), STORE_ID)
    assert found == EntryLogChain(((0x7FFFFFFE, 4000), (0, 4096), (1, 2000)))


def test_a_log_of_a_later_checkpoint_than_its_successor_is_refused() -> None:
    disk = made((0, 4, None), (1, 3, LogPosition(0, 4096)))
    with pytest.raises(CorruptionError, match=r"ELG-005 0.log@0: another log"):
        follow_chain(disk.root(), Trailer(3, 0, LogPosition(1, 4096), 0), STORE_ID)


def test_logs_whose_headers_name_each_other_are_refused() -> None:
    disk = made((0, 2, LogPosition(1, 4096)), (1, 2, LogPosition(0, 4096)))
    with pytest.raises(CorruptionError, match=r"ELG-005 0.log@0: another log"):
        follow_chain(disk.root(), Trailer(2, 0, LogPosition(1, 4096), 0), STORE_ID)


def test_before_the_first_log_nothing_counts() -> None:
    disk = made((0, 1, None))
    assert follow_chain(disk.root(), Trailer(0, 0, None, 0), STORE_ID) == EntryLogChain(())


def test_before_a_damaged_header_logs_count_that_may_be_ours_and_are_not_newer() -> None:
    disk = made((0, 3, None), (1, 4, None), (2, 5, None), (5, 5, None))
    root = disk.root()
    EntryLogWriter.create(root, 3, Origin(b"another store id", 1, None)).close()
    root.create("4.log").close()
    EntryLogWriter.create(root, 6, Origin(STORE_ID, 4, LogPosition(7, 4096))).close()
    with root.create("7.log") as file:
        file.write(0, [bytes(4096)])
    found = follow_chain(root, Trailer(5, 0, LogPosition(6, 4096), 0), STORE_ID)
    assert found.logs == ((0, None), (1, None), (7, 4096), (6, 4096))
    assert [one[:13] for one in found.findings] == ["ELG-001 7.log", "ELG-001 4.log"]


# ── where a bookie has written ───────────────────────────────────────────────────────────────────────────


def with_bookie_logs(disk: SimulatedDisk, *log_ids: int) -> SimulatedDisk:
    for log_id in log_ids:
        with disk.root().create(f"{log_id:x}.log") as file:
            file.write(0, [entrylog_format.encode_header()])
    return disk


def test_the_chain_ends_at_a_bookie_s_log_and_all_earlier_logs_count_as_far_as_they_are_sound() -> None:
    ours = ((0, 3, None), (5, 9, LogPosition(4, 1024)), (6, 10, LogPosition(5, 4096)), (7, 11, None))
    disk = with_bookie_logs(made(*ours), 1, 3, 4)
    disk.root().create("2.log").close()  # preallocated, and never written
    found = follow_chain(disk.root(), Trailer(10, 0, LogPosition(6, 4096), 0), STORE_ID)
    assert found.logs == ((0, None), (1, None), (2, None), (3, None), (4, None), (5, 4096), (6, 4096))
    assert found.findings == ()
    assert found.is_certain


def test_a_log_of_another_store_counts_if_it_was_there_at_an_import() -> None:
    disk = with_bookie_logs(made((1, 3, None), store_id=b"another store id"), 2)
    found = follow_chain(disk.root(), Trailer(5, 0, LogPosition(2, 1024), 0), STORE_ID)
    assert found.logs == ((1, None), (2, None))


def test_a_log_of_ours_that_was_imported_ends_the_chain_too() -> None:
    disk = with_bookie_logs(made((1, 3, None), (2, 4, LogPosition(1, 4096))), 0)
    found = follow_chain(disk.root(), Trailer(5, 0, LogPosition(2, 1024), 0), STORE_ID)
    assert found.logs == ((0, None), (1, 4096), (2, None))


def test_a_missing_log_of_a_bookie_is_noticed() -> None:
    disk = with_bookie_logs(made((5, 9, LogPosition(4, 1024))), 3)
    with pytest.raises(CorruptionError, match="ELG-005"):
        follow_chain(disk.root(), Trailer(9, 0, LogPosition(5, 4096), 0), STORE_ID)


def test_a_bookie_s_log_may_lose_bytes_that_were_never_durable() -> None:
    disk = made((5, 9, LogPosition(4, 1024)))
    disk.root().create("4.log").close()
    found = follow_chain(disk.root(), Trailer(9, 0, LogPosition(5, 4096), 0), STORE_ID)
    assert found == EntryLogChain(((4, None), (5, 4096)))


def test_a_damaged_header_of_a_bookie_s_log_is_a_finding_and_hides_nothing() -> None:
    disk = with_bookie_logs(made((5, 9, LogPosition(4, 1024))), 3, 4)
    with disk.root().create("2.log") as file:
        file.write(0, [b"?" + entrylog_format.encode_header()[1:]])
    found = follow_chain(disk.root(), Trailer(9, 0, LogPosition(5, 4096), 0), STORE_ID)
    assert found.logs == ((2, None), (3, None), (4, None), (5, 4096))
    assert [one[:15] for one in found.findings] == ["ELG-001 2.log@0"]
    assert found.is_certain


def test_a_bookie_s_logs_before_a_damaged_header_count_too() -> None:
    disk = with_bookie_logs(made((1, 3, None)), 0)
    with disk.root().create("2.log") as file:
        file.write(0, [bytes(4096)])
    found = follow_chain(disk.root(), Trailer(5, 0, LogPosition(2, 4096), 0), STORE_ID)
    assert found.logs == ((0, None), (1, None), (2, 4096))
    assert not found.is_certain


@pytest.mark.parametrize(
    ("ids", "order"),
    [
        ((), []),
        ((7,), [7]),
        ((2, 0, 1), [0, 1, 2]),
        ((0, 9, 0x30), [0, 9, 0x30]),
        ((0, 1, 0x7FFFFFFD, 0x7FFFFFFE), [0x7FFFFFFD, 0x7FFFFFFE, 0, 1]),
        ((0x7FFFFFFF, 3), [0x7FFFFFFF, 3]),
    ],
)
def test_ids_are_in_the_order_in_which_they_were_given_out(ids: tuple[int, ...], order: list[int]) -> None:
    assert in_creation_order(ids) == order
