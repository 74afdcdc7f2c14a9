"""Times what an opening does with a journal of 64 MiB: a scan, then its records in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from journal_builder import entry_record

from storage.disk.posix import open_file
from storage.entry.digest_inference import EntryVerifier
from storage.entry.position import JournalPosition
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.journal.reader import JournalReader
from storage.journal.record_batches import record_batches
from storage.journal.scan import JournalScan, scan
from storage.journal.seal import Seal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from storage.disk.files import ReadFile

SIZE = 64 << 20
ALIGNMENT = 4096
SALT = 7
RECORD = entry_record(1, 0, bytes(1024 - 40))
GROUPS = pytest.mark.parametrize(
    "journal", [1, 8, 1000, 4096], ids="{}_records_of_1_KB_in_a_group".format, indirect=True
)


def group(start: int, sequence: int, records: int) -> bytes:
    seal = Seal(1, SALT, sequence, start, JournalPosition(1, start), records)
    return journal_seal.encode_group([RECORD] * records, sum(map(len, [RECORD] * records)), seal, ALIGNMENT)


def write_journal(path: Path, records: int, size: int) -> None:
    """Write a file of 64 MiB with groups of `records` records up to `size`, and zeros after them."""
    header = journal_format.encode_header(journal_format.JournalHeader(journal_format.VERSION_MAX, SALT))
    with path.open("wb") as file:
        file.write(header + journal_seal.header_padding(ALIGNMENT))
        sequence = 1
        while file.tell() < size:
            file.write(group(file.tell(), sequence, records))
            sequence += 1
        file.truncate(max(SIZE, file.tell()))


@pytest.fixture
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReadFile]:
    write_journal(tmp_path / "1.txn", request.param, SIZE)
    with open_file(tmp_path / "1.txn") as file:
        yield file


def scanned(file: ReadFile) -> JournalScan:
    return scan(JournalReader(file, 1), EntryVerifier())


def replayed(file: ReadFile, end: int) -> int:
    return sum(len(batch.records) for batch in record_batches(JournalReader(file, 1), 0, end))


@GROUPS
def test_scan(benchmark: BenchmarkFixture, journal: ReadFile) -> None:
    facts = benchmark(scanned, journal)
    assert facts.is_sound
    assert facts.end >= SIZE


@GROUPS
def test_records_in_batches(benchmark: BenchmarkFixture, journal: ReadFile) -> None:
    facts = scanned(journal)
    assert benchmark(replayed, journal, facts.end) == facts.record_count


@pytest.fixture
def zeros(tmp_path: Path) -> Iterator[ReadFile]:
    """A journal with one small group and only zeros after it."""
    write_journal(tmp_path / "1.txn", 1, ALIGNMENT + 1)
    with open_file(tmp_path / "1.txn") as file:
        yield file


def test_scan_zeros(benchmark: BenchmarkFixture, zeros: ReadFile) -> None:
    assert benchmark(scanned, zeros).is_sound


def test_search_zeros_for_seals(benchmark: BenchmarkFixture, zeros: ReadFile) -> None:
    reader = JournalReader(zeros, 1)
    assert benchmark(lambda: list(reader.seals_after(2 * ALIGNMENT))) == []
