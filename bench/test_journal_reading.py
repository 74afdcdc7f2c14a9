"""What opening does with each journal of ours: a scan, then its records in batches. 64 MiB, zeros ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from journals import entry_record

from storage.codec import journal as journal_codec
from storage.codec import seal as seal_codec
from storage.codec.seal import Seal
from storage.codec.survey import EntryVerifier
from storage.journal_reader import JournalReader
from storage.journal_records import record_batches
from storage.journal_scan import JournalScan, scan
from storage.position import JournalPosition
from storage.posix_files import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

    from storage.files import ReadFile

SIZE = 64 << 20
ALIGNMENT = 4096
SALT = 7
RECORD = entry_record(1, 0, bytes(1024 - 40))
GROUPS = pytest.mark.parametrize(
    "journal", [1, 8, 1000, 4096], ids="{}_records_of_1_KB_in_a_group".format, indirect=True
)


def group(start: int, sequence: int, records: int) -> bytes:
    seal = Seal(1, SALT, sequence, start, JournalPosition(1, start), records)
    return b"".join(seal_codec.encode_group([RECORD] * records, seal, ALIGNMENT))


def write_journal(path: Path, records: int, size: int) -> None:
    """A file of 64 MiB whose groups, each of so many records, reach up to `size`."""
    header = journal_codec.encode_header(journal_codec.Header(journal_codec.VERSION_MAX, SALT))
    with path.open("wb") as file:
        file.write(header + seal_codec.header_padding(ALIGNMENT))
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
    """One small group, and nothing but zeros behind it."""
    write_journal(tmp_path / "1.txn", 1, ALIGNMENT + 1)
    with open_file(tmp_path / "1.txn") as file:
        yield file


def test_scan_zeros(benchmark: BenchmarkFixture, zeros: ReadFile) -> None:
    assert benchmark(scanned, zeros).is_sound


def test_search_zeros_for_seals(benchmark: BenchmarkFixture, zeros: ReadFile) -> None:
    reader = JournalReader(zeros, 1)
    assert benchmark(lambda: list(reader.seals_behind(2 * ALIGNMENT))) == []
