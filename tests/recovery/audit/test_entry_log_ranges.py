from __future__ import annotations

import random
from dataclasses import replace

import pytest
from entry_log_builder import Log
from random_damage import log_of, mutated
from random_logs import OddLog, record
from slow_scan import differences, fast

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.model.scan_results import FlawKind, LogPart
from recovery.audit.scan import entry_log_flaws, entry_log_ranges
from storage.entry.model import DigestType
from storage.entry.read_result import EndOfData

OURS = DigestPolicy(presumed=DigestType.CRC32C)


def in_ranges(data: bytes, count: int, policy: DigestPolicy = OURS) -> list[LogPart]:
    return [fast(data, policy, start, end) for start, end in entry_log_ranges.ranges(len(data), count)]


def mended(data: bytes, parts: list[LogPart], policy: DigestPolicy = OURS) -> LogPart:
    """Read broken ranges again until none is broken. Return the merged part."""
    for _ in range(2 * len(parts) + 2):
        broken = entry_log_ranges.broken(parts)
        if not broken:
            return entry_log_ranges.stitched(parts)
        parts = parts + [fast(data, policy, start, end, entry=start) for start, end in broken]
    raise AssertionError("never whole")


def log_in_payloads(count: int = 40) -> bytes:
    """Every third payload is a piece of an entry log whose records are sound."""
    inner = Log()
    for entry_id in range(60):
        inner.add(record(9, entry_id, b"i" * 150))
    piece = inner.file()[1024:]
    log = Log()
    for entry_id in range(count):
        log.add(record(1, entry_id, piece if entry_id % 3 == 0 else b"x" * 200))
    return log.seal().file()


@pytest.mark.parametrize(("size", "count"), [(0, 1), (10, 3), (1 << 31, 7), (5, 8)])
def test_ranges_are_consecutive_up_to_the_end(size: int, count: int) -> None:
    found = list(entry_log_ranges.ranges(size, count))
    assert [found[0][0], *[end for _, end in found]] == [*[start for start, _ in found], size]


@pytest.mark.parametrize("count", [2, 3, 7, 40])
def test_a_log_in_ranges_is_the_same_as_in_one(count: int) -> None:
    data = log_of().seal().file()
    assert differences(mended(data, in_ranges(data, count)), fast(data, OURS)) == []


def test_ranges_of_a_sound_log_need_no_second_reading() -> None:
    log = Log()
    for entry_id in range(500):
        log.add(record(1, entry_id, b"x" * 90))
    parts = in_ranges(log.file(), 7)
    assert entry_log_ranges.broken(parts) == []
    assert [part.exit for part in parts[:-1]] == [part.entry for part in parts[1:]]


@pytest.mark.parametrize("count", [5, 9, 16])
def test_payloads_with_log_records_mislead_a_range_but_not_the_merged_result(count: int) -> None:
    data = log_in_payloads()
    parts = in_ranges(data, count)
    fooled = [part for part in parts if 9 in part.runs["ledger"]]
    assert fooled, "the payloads are meant to be believed"
    assert entry_log_ranges.broken(parts)
    whole = mended(data, parts)
    assert differences(whole, fast(data, OURS)) == []
    assert set(whole.runs["ledger"].tolist()) == {1}


def test_a_range_inside_one_record_is_ignored() -> None:
    log = Log().add(record(1, 0, b"a"), record(1, 1, b"b" * 9000), record(1, 2, b"c"))
    data = log.file()
    parts = in_ranges(data, 12)
    whole = mended(data, parts)
    assert differences(whole, fast(data, OURS)) == []
    assert len(entry_log_ranges.stitch(parts).parts) < len(parts)


@pytest.mark.parametrize(("zeros", "count", "counting"), [(3, 9, 3), (3, 8, 3), (0, 3, 3)])
def test_if_the_data_ends_before_a_range_later_ranges_are_ignored(
    zeros: int, count: int, counting: int
) -> None:
    data = log_of().file()
    end = len(data)
    data = data + bytes(zeros * end)
    parts = in_ranges(data, count)
    parts += [fast(data, OURS, start, stop, entry=start) for start, stop in entry_log_ranges.broken(parts)]
    assert entry_log_ranges.stitched(parts).stop == EndOfData(end)
    assert len(entry_log_ranges.stitch(parts).parts) == counting


def test_a_range_that_ends_inside_a_hole_takes_nothing_after_it() -> None:
    log = log_of()
    hole = len(log.data)
    log.data += b"\xff" * 4
    log.add(record(1, 9, b"behind"))
    part = fast(log.file(), OURS, 0, hole + 2)
    assert (part.exit, part.records, part.stop) == (hole + 4, 12, None)
    assert [(flaw.offset, flaw.end) for flaw in part.flaws] == [(hole, hole + 4)]


@pytest.mark.parametrize("block", range(4))
def test_damaged_logs_in_ranges_are_the_same_as_in_one(block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        dice = random.Random(seed)
        log = OddLog(dice)
        data = mutated(log.data, dice)
        policy = DigestPolicy(dict(enumerate(log.kinds)), DigestType.CRC32C)
        parts = in_ranges(data, dice.choice([2, 3, 7]), policy)
        assert differences(mended(data, parts, policy), fast(data, policy)) == [], seed


def test_many_flaws_are_counted_the_same_however_the_log_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_log_flaws, "EXACT_MAX", 4)
    log = Log()
    for entry_id in range(60):
        log.add(record(1, entry_id, b"x" * 100, confirmed=entry_id))
    data = bytearray(log.file())
    for place in log.places[::3]:
        data[place + 50] ^= 1
    whole = fast(bytes(data), OURS)
    assert [flaw.count for flaw in whole.flaws if flaw.kind is FlawKind.DIGEST] == [1, 1, 1, 1, 16]
    for count in (2, 5, 9):
        assert differences(mended(bytes(data), in_ranges(bytes(data), count)), whole) == []


def test_of_several_parts_of_a_range_the_one_that_fits_counts() -> None:
    data = log_of().file()
    parts = in_ranges(data, 2)
    wrong = replace(parts[1], entry=parts[1].entry + 1, records=99)
    assert entry_log_ranges.broken([parts[0], wrong]) == [(parts[0].exit, len(data))]
    assert entry_log_ranges.stitched([parts[0], parts[1], wrong]).records == 12
