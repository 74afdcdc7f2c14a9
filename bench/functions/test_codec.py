"""Times the functions of the formats that run for each entry, with a block of one megabyte of entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.entry import format as entry_format
from storage.entry import verify, verify_numpy
from storage.entry.digest import digester
from storage.entry.model import DigestType, Entry
from storage.entry.position import LENGTH_WORD_SIZE, JournalPosition
from storage.entry.verify import EntryBounds
from storage.journal import format as journal_format
from storage.journal import seal
from storage.journal.seal import Seal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

    from storage.entry.digest import Buffer, Digester

    Verify = Callable[[Buffer, EntryBounds, Digester], list[int]]

BLOCK_SIZE = 1 << 20
CRC32C = digester(DigestType.CRC32C)
SIZES = pytest.mark.parametrize("size", [100, 1024])
VERIFIERS = pytest.mark.parametrize(
    "mismatches", [verify.mismatches_one_by_one, verify_numpy.mismatches], ids=["plain", "numpy"]
)


def records(size: int) -> list[bytes]:
    payload = bytes(size)
    entries = (Entry(1, number, number - 1, size * number, payload) for number in range(BLOCK_SIZE // size))
    return [journal_format.encode_record(entry_format.encode(entry, CRC32C)) for entry in entries]


@SIZES
def test_encode_entries(benchmark: BenchmarkFixture, size: int) -> None:
    assert len(benchmark(records, size)) == BLOCK_SIZE // size


@SIZES
def test_seal_a_group(benchmark: BenchmarkFixture, size: int) -> None:
    entries = records(size)
    one = Seal(1, 2, 3, 4096, JournalPosition(1, 4096), len(entries))
    assert benchmark(seal.encode_group, entries, sum(map(len, entries)), one, 4096)


@SIZES
@VERIFIERS
def test_verify_a_block(benchmark: BenchmarkFixture, size: int, mismatches: Verify) -> None:
    entries = records(size)
    ends = [len(entries[0]) * number for number in range(1, len(entries) + 1)]
    bounds = EntryBounds([end - len(entries[0]) + LENGTH_WORD_SIZE for end in ends], ends)
    assert benchmark(mismatches, b"".join(entries), bounds, CRC32C) == []
