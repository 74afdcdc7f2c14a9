from __future__ import annotations

import pickle
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import fixtures
import numpy as np
import pytest
from entry_log_builder import Log, direct_log
from memory_files import MemoryFile
from random_damage import log_of, mutated
from random_logs import PASSWORD, OddLog, record
from sampling import many
from slow_scan import differences, fast, slow

from recovery.audit.digests import mixed_types
from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.task import ReadThrottle
from recovery.audit.model.fingerprint import fingerprints
from recovery.audit.model.scan_results import FlawKind, LogPart
from recovery.audit.scan import chunk_runs, chunk_verify, entry_log_flaws, entry_log_walk
from recovery.audit.scan.chunk_columns import ChunkColumns
from recovery.audit.scan.entry_log import ScanLog, scan
from storage.entry.model import DigestType
from storage.entry.read_result import EndOfData, Flaw, Torn
from storage.entrylog import scan as entrylog_scan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.entrylog.reader import EntryLogReader
    from storage.entrylog.scan import LogItem

CRC32C, CRC32, MAC, DUMMY = DigestType.CRC32C, DigestType.CRC32, DigestType.MAC, DigestType.DUMMY
OURS = DigestPolicy(presumed=CRC32C)
A_BOOKIE_S = DigestPolicy()


def kinds(part: LogPart) -> list[FlawKind]:
    return [flaw.kind for flaw in part.flaws]


def run_rows(part: LogPart, *names: str) -> list[tuple[int, ...]]:
    return [tuple(int(run[name]) for name in names) for run in part.runs]


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make every limit of the walk so small that a small log reaches it."""

    def shrink(dice: random.Random) -> None:
        capacity = dice.choice([1, 3, 50, 9999])
        monkeypatch.setattr(entry_log_walk, "CHUNK_SIZE", dice.choice([500, 1500, 5000, 2 << 20]))
        monkeypatch.setattr(entry_log_walk, "_CHUNK_MIN", dice.choice([300, 2000]))
        monkeypatch.setattr(entry_log_walk, "ChunkColumns", lambda: ChunkColumns(capacity))
        monkeypatch.setattr(chunk_verify, "REGULAR_MIN", dice.choice([1, 2, 4, 128]))
        monkeypatch.setattr(chunk_verify, "_HOP_MAX", dice.choice([2, 4096]))
        monkeypatch.setattr(chunk_runs, "_ROWS_MAX", dice.choice([3, 1000]))
        monkeypatch.setattr(mixed_types, "UNKNOWN_MAX", dice.choice([1, 5, 256]))

    return shrink


# ── equal to the slow path ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", fixtures.SETS)
def test_bookie_logs_are_scanned_as_on_the_slow_path(name: str) -> None:
    for path in fixtures.entry_logs(name):
        for policy in (A_BOOKIE_S, DigestPolicy(passwords=fixtures.passwords(name)), OURS):
            assert differences(fast(path.read_bytes(), policy), slow(path.read_bytes(), policy)) == []


@pytest.mark.parametrize("name", fixtures.SETS)
def test_nothing_is_wrong_with_what_a_bookie_wrote(name: str) -> None:
    for path in fixtures.entry_logs(name):
        assert fast(path.read_bytes(), A_BOOKIE_S).flaws == ()


@pytest.mark.parametrize(
    "data",
    [b"", b"BKLO", bytes(1024), direct_log(), log_of().file(), bytes(1024) + log_of().file()[1024:]],
    ids=["empty", "short", "zeros", "direct", "ours", "v0"],
)
@pytest.mark.parametrize("policy", [OURS, A_BOOKIE_S], ids=["ours", "bookie"])
def test_every_kind_of_log_is_scanned_as_on_the_slow_path(data: bytes, policy: DigestPolicy) -> None:
    assert differences(fast(data, policy), slow(data, policy)) == []


def ways_for(log: OddLog, dice: random.Random) -> DigestPolicy:
    declared = dict(enumerate(log.kinds))
    return dice.choice(
        [
            A_BOOKIE_S,
            OURS,
            DigestPolicy(password=PASSWORD),
            DigestPolicy(declared, CRC32C),
            DigestPolicy(declared, CRC32C, password=PASSWORD),
            DigestPolicy(presumed=CRC32C, open=frozenset({0, 1})),
        ]
    )


def check_odd_logs(seeds: range, tiny: Any) -> None:
    for seed in seeds:
        dice = random.Random(seed)
        tiny(dice)
        log = OddLog(dice)
        data = mutated(log.data, dice) if dice.random() < 0.7 else log.data
        policy, steps = ways_for(log, dice), dice.choice([None, {0: 2, 1: 3}])
        assert differences(fast(data, policy, steps=steps), slow(data, policy, steps)) == [], seed


@pytest.mark.sampled
@pytest.mark.parametrize("block", range(4))
def test_damaged_logs_of_every_kind_are_scanned_as_on_the_slow_path(block: int, tiny: Any) -> None:
    check_odd_logs(range(block * 75, block * 75 + many(75, 15)), tiny)


@pytest.mark.slow
@pytest.mark.parametrize("thousand", range(1, 7))
def test_thousands_of_damaged_logs_are_scanned_as_on_the_slow_path(thousand: int, tiny: Any) -> None:
    check_odd_logs(range(thousand * 1000, thousand * 1000 + 1000), tiny)


# ── plain logs ───────────────────────────────────────────────────────────────────────────────────────────


def test_entries_become_runs_for_any_order_of_their_ledgers() -> None:
    log = Log()
    for entry_id in range(300):
        for ledger_id in (5, 70_000, 5 + (1 << 16)):
            log.add(record(ledger_id, entry_id, b"x" * 50))
    part = fast(log.file(), OURS)
    assert run_rows(part, "file", "ledger", "first", "last", "count", "bad") == [
        (7, 5, 0, 299, 300, 0),
        (7, 5 + (1 << 16), 0, 299, 300, 0),
        (7, 70_000, 0, 299, 300, 0),
    ]
    assert (part.records, part.entry, part.exit) == (900, 1024, len(log.data))
    assert part.stop == EndOfData(len(log.data))
    assert sum(part.runs["size"]) == len(log.data) - 1024 == part.size


@pytest.mark.parametrize("size", [0, 60])
def test_fingerprints_are_made_of_places_and_digests(size: int) -> None:
    log = Log()
    for entry_id in range(200):
        log.add(record(1 << 40, entry_id, b"x" * (size and size + entry_id % 3)))
    part = fast(log.file(), OURS)
    places, digests = np.uint64(0), np.uint64(0)
    for entry_id, offset in enumerate(log.places):
        digest = int.from_bytes(log.data[offset + 36 : offset + 40], "big")
        places ^= fingerprints([1 << 40], [entry_id], [offset + 4 | 7 << 32])[0]
        digests ^= fingerprints([1 << 40], [entry_id], [digest])[0]
    assert run_rows(part, "places", "digests") == [(int(places), int(digests))]


def test_a_striped_ledger_has_a_run_for_each_residue() -> None:
    log = Log()
    for entry_id in range(30):
        if entry_id % 3 != 2:
            log.add(record(1, entry_id, b"x"))
    part = fast(log.file(), OURS, steps={1: 3})
    assert run_rows(part, "step", "first", "last", "count") == [(3, 0, 27, 10), (3, 1, 28, 10)]


def test_a_record_larger_than_a_chunk_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_log_walk, "CHUNK_SIZE", 4096)
    log = Log().add(record(1, 0, b"a"), record(1, 1, bytes(20_000)), record(1, 2, b"c"))
    assert run_rows(fast(log.file(), OURS), "first", "last", "bad") == [(0, 2, 0)]


def test_progress_is_the_number_of_bytes_scanned() -> None:
    told: list[int] = []
    data = log_of().seal().file()
    part = scan(MemoryFile(data), ScanLog("x", 7, 0, len(data), OURS), ReadThrottle(told.append))
    assert sum(told) == part.size == len(data) - 1024


def test_a_task_is_the_same_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "7.log"
    path.write_bytes(log_of().file())
    task = ScanLog(str(path), 7, 0, path.stat().st_size, OURS)
    part = pickle.loads(pickle.dumps(task)).run(ReadThrottle())
    assert differences(part, pickle.loads(pickle.dumps(task.run(ReadThrottle())))) == []
    assert differences(part, fast(path.read_bytes(), OURS)) == []


def test_a_file_that_shrinks_during_the_scan_is_an_error() -> None:
    class Shrinking(MemoryFile):
        def size(self) -> int:
            return super().size() + 5000

    with pytest.raises(OSError, match="shorter"):
        scan(Shrinking(log_of().file()), ScanLog("x", 7, 0, 1 << 40, OURS), ReadThrottle())


@pytest.fixture
def slow_path_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets at which the slow path was used."""
    places: list[int] = []
    items = entrylog_scan.items

    def counted(reader: EntryLogReader, start: int = 1024) -> Iterator[LogItem]:
        places.append(start)
        return items(reader, start)

    monkeypatch.setattr(entrylog_scan, "items", counted)
    return places


def long_log(kind: DigestType = CRC32C) -> Log:
    """A region of records of one size, and one of many sizes."""
    log = Log()
    for entry_id in range(3000):
        size = 100 if entry_id < 1500 else 4 + entry_id % 80
        log.add(record(entry_id % 3, entry_id // 3, b"x" * size, kind))
    return log


@pytest.mark.parametrize("policy", [OURS, A_BOOKIE_S], ids=["ours", "bookie"])
def test_plain_entries_are_proven_without_the_slow_path(
    policy: DigestPolicy, slow_path_steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_log_walk, "CHUNK_SIZE", 64 << 10)
    monkeypatch.setattr(mixed_types, "verify_block", None)
    log = long_log()
    end = len(log.data)
    part = fast(log.seal().file(), policy)
    assert slow_path_steps == [end, len(log.data)]
    assert part.records == 3000


def test_only_a_bad_entry_takes_the_slow_path(slow_path_steps: list[int]) -> None:
    log = long_log()
    part = fast(flipped(log.file(), log.places[1000] + 60), OURS)
    assert slow_path_steps == [log.places[1000], len(log.data)]
    assert len(part.flaws) == 1


@pytest.mark.parametrize("kind", [CRC32, MAC, DUMMY])
def test_a_declared_type_needs_no_slow_path(kind: DigestType, slow_path_steps: list[int]) -> None:
    part = fast(long_log(kind).file(), DigestPolicy(dict.fromkeys(range(3), kind), password=PASSWORD))
    assert slow_path_steps == [part.exit]
    assert part.flaws == ()


@pytest.mark.parametrize(("kind", "looks"), [(CRC32, 4), (MAC, 16), (DUMMY, 16)])
def test_a_few_entries_settle_the_type_of_a_ledger(
    kind: DigestType, looks: int, slow_path_steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixed_types, "UNKNOWN_MAX", 12)
    log = Log()
    for entry_id in range(600):
        log.add(record(entry_id % 3, entry_id // 3, b"x" * 50, kind))
    part = fast(log.file(), A_BOOKIE_S)
    assert part.types == dict.fromkeys(range(3), kind)
    assert 3 * looks <= len(slow_path_steps) <= 3 * looks + 12


# ── flaws ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_bad_entry_is_placed_and_counted_but_not_among_the_digests() -> None:
    log = log_of()
    place = log.places[6]
    part = fast(flipped(log.file(), place + 45), OURS)
    sound = fast(log.file(), OURS)
    (flaw,) = part.flaws
    assert (flaw.kind, flaw.flaw, flaw.offset, flaw.ledger_id, flaw.entry_id) == (
        FlawKind.DIGEST,
        Flaw.DIGEST,
        place,
        0,
        2,
    )
    assert run_rows(part, "ledger", "count", "bad") == [(0, 4, 1), (1, 4, 0), (2, 4, 0)]
    assert run_rows(part, "places") == run_rows(sound, "places")
    differing = np.flatnonzero(part.runs["digests"] != sound.runs["digests"])
    assert differing.tolist() == [0]


def test_a_hole_ends_where_a_sound_record_begins() -> None:
    log = Log()
    for entry_id in range(500):
        log.add(record(1, entry_id, b"x" * 100))
    data = bytearray(log.file())
    first, behind = log.places[200], log.places[203]
    data[first + 2 : behind - 7] = bytes(behind - 9 - first)
    part = fast(bytes(data), OURS)
    assert [(flaw.kind, flaw.offset, flaw.end) for flaw in part.flaws] == [(FlawKind.HOLE, first, behind)]
    assert run_rows(part, "first", "last") == [(0, 199), (203, 499)]


def test_a_torn_tail_is_distinguished_from_damage() -> None:
    data = log_of().file()
    assert isinstance(fast(data[:-5], OURS).stop, Torn)
    assert fast(data[:-5], OURS).flaws == ()


def test_many_flaws_are_exact_up_to_a_limit_and_then_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_log_flaws, "EXACT_MAX", 3)
    log = Log()
    for entry_id in range(20):
        log.add(record(1, entry_id, b"x" * 100))
    data = bytearray(log.file())
    for place in log.places[::2]:
        data[place + 50] ^= 1
    flaws = fast(bytes(data), OURS).flaws
    assert [(flaw.entry_id, flaw.count) for flaw in flaws] == [(0, 1), (2, 1), (4, 1), (None, 7)]
    assert flaws[-1].offset == log.places[6]
    assert flaws[-1].end == log.places[19]
    assert flaws[-1].detail == "7 more of the same kind"


def test_entries_confirmed_before_they_were_added_are_one_flaw_for_each_ledger() -> None:
    log = Log()
    for entry_id in range(10):
        log.add(record(1, entry_id, b"x", confirmed=entry_id + entry_id % 2 - 1))
        log.add(record(2, entry_id, b"x"))
    (flaw,) = fast(log.file(), OURS).flaws
    assert flaw.kind is FlawKind.CONFIRMED
    assert (flaw.ledger_id, flaw.entry_id, flaw.count) == (1, 1, 5)
    assert (flaw.offset, flaw.end) == (log.places[2], log.places[19])


def test_a_damaged_last_add_confirmed_is_only_a_damaged_entry() -> None:
    log = log_of()
    assert kinds(fast(flipped(log.file(), log.places[6] + 4 + 17), OURS)) == [FlawKind.DIGEST]


# ── digest types ─────────────────────────────────────────────────────────────────────────────────────────


def typed(*of_ledgers: DigestType, count: int = 40) -> Log:
    log = Log()
    for entry_id in range(count):
        for ledger_id, kind in enumerate(of_ledgers):
            log.add(record(ledger_id, entry_id, b"x" * 60, kind))
    return log


def test_a_type_that_is_not_declared_is_inferred_from_the_entries() -> None:
    part = fast(typed(CRC32C, CRC32, MAC, DUMMY).file(), A_BOOKIE_S)
    assert part.types == {1: CRC32, 2: MAC, 3: DUMMY}
    assert part.unverified == {2: 40, 3: 40}
    assert part.flaws == ()


def test_a_mac_is_verified_with_its_password() -> None:
    log = typed(CRC32C, MAC)
    policy = DigestPolicy(password=PASSWORD)
    assert fast(log.file(), policy).unverified == {}
    (flaw,) = fast(flipped(log.file(), log.places[31] + 80), policy).flaws
    assert (flaw.kind, flaw.ledger_id, flaw.entry_id) == (FlawKind.DIGEST, 1, 15)
    assert fast(flipped(log.file(), log.places[31] + 80), A_BOOKIE_S).flaws == ()


def test_one_bad_entry_among_many_of_another_type_is_found() -> None:
    log = typed(CRC32C, CRC32)
    (flaw,) = fast(flipped(log.file(), log.places[41] + 80), A_BOOKIE_S).flaws
    assert (flaw.ledger_id, flaw.entry_id) == (1, 20)


def test_a_declared_type_is_not_questioned() -> None:
    part = fast(typed(CRC32).file(), DigestPolicy({0: CRC32C}))
    assert set(kinds(part)) == {FlawKind.DIGEST}
    assert run_rows(part, "count", "bad") == [(40, 40)]


def test_an_entry_of_a_ledger_without_other_evidence_is_doubted() -> None:
    log = typed(CRC32C, CRC32C)
    data = flipped(log.file(), log.places[9] + 4 + 3)
    part = fast(data, A_BOOKIE_S)
    assert [(flaw.kind, flaw.offset) for flaw in part.flaws] == [(FlawKind.DOUBT, log.places[9])]
    assert kinds(fast(data, OURS)) == [FlawKind.DIGEST]


def test_late_evidence_also_counts_for_the_first_entry() -> None:
    log = Log().add(record(0, 0, b"x" * 60))
    for entry_id in range(5, 30):
        log.add(record(1, entry_id, b"x" * 60))
    (flaw,) = fast(flipped(log.file(), log.places[1] + 70), A_BOOKIE_S).flaws
    assert (flaw.kind, flaw.entry_id) == (FlawKind.DIGEST, 5)


def test_a_wrong_first_guess_at_a_type_is_corrected() -> None:
    log = Log().add(record(0, 0, b"x" * 60, DUMMY, length=40))
    for entry_id in range(1, 30):
        log.add(record(0, entry_id, b"x" * 60, DUMMY, length=40 + 60 * entry_id))
    told, declared = fast(log.file(), A_BOOKIE_S), fast(log.file(), DigestPolicy({0: DUMMY}))
    assert told.types == {0: DUMMY}
    assert differences(told, declared) == []


def test_a_ledger_is_doubted_beside_declared_ones_too() -> None:
    log = typed(CRC32, CRC32)
    part = fast(flipped(log.file(), log.places[9] + 4 + 3), DigestPolicy({0: CRC32, 1: CRC32}))
    assert [(flaw.kind, flaw.offset) for flaw in part.flaws] == [(FlawKind.DOUBT, log.places[9])]


def test_the_digest_of_an_entry_without_one_is_that_of_all_its_bytes() -> None:
    one = fast(typed(DUMMY, count=3).file(), DigestPolicy({0: DUMMY}))
    other = fast(flipped(typed(DUMMY, count=3).file(), 1024 + 60), DigestPolicy({0: DUMMY}))
    assert one.runs["digests"][0] != other.runs["digests"][0]
    assert differences(replace(one, runs=other.runs), other) == []
