"""The codecs' hot functions: a block of a megabyte of entries each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.codec import entry as entry_codec
from storage.codec import frames_numpy, frames_plain, seal
from storage.codec import journal as journal_codec
from storage.codec.digest import digester
from storage.codec.seal import Seal
from storage.entry import DigestType, Entry
from storage.position import JournalPosition

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from storage.codec.frames import Kernel

BLOCK_SIZE = 1 << 20
CRC32C = digester(DigestType.CRC32C)
SIZES = pytest.mark.parametrize("size", [100, 1024])
KERNELS = pytest.mark.parametrize("kernel", [frames_plain, frames_numpy], ids=["plain", "numpy"])


def records(size: int) -> list[bytes]:
    payload = bytes(size)
    entries = (Entry(1, number, number - 1, size * number, payload) for number in range(BLOCK_SIZE // size))
    return [journal_codec.encode_record(entry_codec.encode(entry, CRC32C)) for entry in entries]


@SIZES
def test_encode_entries(benchmark: BenchmarkFixture, size: int) -> None:
    assert len(benchmark(records, size)) == BLOCK_SIZE // size


@SIZES
def test_seal_a_group(benchmark: BenchmarkFixture, size: int) -> None:
    entries = records(size)
    one = Seal(1, 2, 3, 4096, JournalPosition(1, 4096), len(entries))
    assert benchmark(seal.encode_group, entries, one, 4096)


@SIZES
@KERNELS
def test_split_a_block(benchmark: BenchmarkFixture, size: int, kernel: Kernel) -> None:
    block = b"".join(records(size))
    assert len(benchmark(kernel.split_log, block, 0)) == BLOCK_SIZE // size


@SIZES
@KERNELS
def test_verify_a_block(benchmark: BenchmarkFixture, size: int, kernel: Kernel) -> None:
    block = b"".join(records(size))
    found = kernel.split_log(block, 0)
    assert benchmark(kernel.mismatches, block, found, CRC32C) == []
