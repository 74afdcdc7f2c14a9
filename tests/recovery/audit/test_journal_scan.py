"""Scans of journals: the same entries and facts as a walk record by record, for every kind of journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fixtures
import pytest
from audited_journals import JOURNAL_ID, OURS, ids, items, part_of, slow_totals, totals
from bookie_clients import AddingClient
from hypothesis import given, settings
from journal_builder import BookieJournal, OurJournal, entry_bytes, entry_record
from sampling import every, many
from sealed_journals import SealedJournal, sound

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.task import ReadThrottle
from recovery.audit.scan import journal_chunks
from recovery.audit.scan.journal import ScanJournal
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark_format import Mark
from storage.disk.posix import PosixDirectory
from storage.entry.model import DigestType
from storage.entry.read_result import EndOfData
from storage.journal import format as journal_format
from storage.journal.seal import GroupFlag

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.model.scan_results import JournalPart

BOOKIE = DigestPolicy()
PASSWORD = b"secret"


def starts(journal: Path) -> list[int | None]:
    """Return the places from which a scan starts: `None` before the mark, the first record, and the mark."""
    mark = lastmark.load(PosixDirectory(journal.parents[2] / "ledgers/current"))
    assert isinstance(mark, Mark | lastmark.NoMark)
    at = [mark.position.offset] if isinstance(mark, Mark) and _id(journal) == mark.position.journal_id else []
    return [None, 0, *at]


def _id(journal: Path) -> int:
    return int(journal.stem, 16)


CASES = [
    (name, journal, start)
    for name in fixtures.SETS
    for journal in fixtures.journals(name)
    for start in starts(journal)
]


@pytest.mark.parametrize(("name", "journal", "start"), CASES, ids=lambda it: getattr(it, "name", str(it)))
def test_a_real_journal_has_no_flaws_and_every_entry(name: str, journal: Path, start: int | None) -> None:
    data, journal_id = journal.read_bytes(), _id(journal)
    part = part_of(data, start, BOOKIE, journal_id)
    every = items(data, journal_id=journal_id)
    records = [item for item in every if not item.is_padding]
    mark = len(data) if start is None else start

    assert (part.flaws, part.tail) == ((), ())
    assert totals(part.before_mark) == slow_totals(
        (item for item in records if item.start < mark), part.types
    )
    assert totals(part.after_mark) == slow_totals(
        (item for item in records if item.start >= mark), part.types
    )
    assert part.records == len(records)
    assert [fact.offset for fact in part.facts] == [item.start for item in records if not item.is_entry]
    assert part.marked_at_record is (True if start else None)
    assert set(part.before_mark["file"]) | set(part.after_mark["file"]) == {journal_id}


# ── ours ─────────────────────────────────────────────────────────────────────────────────────────────────


def everything(alignment: int = 512) -> OurJournal:
    """A ledgerstore journal with every kind of record, plain and atomic groups, and an empty group."""
    journal = OurJournal(JOURNAL_ID, alignment=alignment, size=1 << 16)
    journal.group(journal_format.encode_ledger_key(1, b"k" * 20), *(entry_record(1, one) for one in range(5)))
    journal.group(*(entry_record(2, one, b"p" * 3000) for one in range(3)), flags=GroupFlag.ATOMIC)
    journal.group()
    journal.group(
        journal_format.encode_fence(2), journal_format.encode_explicit_lac(1, b"p" * 20), entry_record(1, 5)
    )
    return journal.group(entry_record(3, 7), entry_record(1, 6), entry_record(3, 9), entry_record(3, 8))


def check(part: JournalPart, data: bytes, mark: int | None) -> None:
    """Compare with a walk that reads each record by itself."""
    records = [item for item in items(data) if not item.is_padding]
    begin = len(data) if mark is None else mark
    assert (part.flaws, part.tail, dict(part.unverified)) == ((), (), {})
    assert totals(part.before_mark) == slow_totals(item for item in records if item.start < begin)
    assert totals(part.after_mark) == slow_totals(item for item in records if item.start >= begin)
    assert part.records == len(records)
    assert [fact.offset for fact in part.facts] == [item.start for item in records if not item.is_entry]


@pytest.mark.parametrize("alignment", [512, 4096])
def test_a_journal_of_ours_is_read_whole_from_any_mark(alignment: int) -> None:
    journal = everything(alignment)
    for mark in (None, 0, 512, *journal.ends):
        part = part_of(journal.file(), mark)
        check(part, journal.file(), mark)
        assert part.marked_at_record is (True if mark else None)


def test_records_about_ledgers_are_returned() -> None:
    facts = part_of(everything().file()).facts
    assert [(fact.ledger_id, fact.master_key, fact.fences, fact.explicit_lac) for fact in facts] == [
        (1, b"k" * 20, False, None),
        (2, None, True, None),
        (1, None, False, b"p" * 20),
    ]


def test_runs_are_as_long_as_they_can_be() -> None:
    part = part_of(everything().file())
    assert [(run["ledger"], run["first"], run["last"], run["count"]) for run in part.after_mark] == [
        (1, 0, 6, 7),
        (2, 0, 2, 3),
        (3, 7, 9, 3),
    ]


def test_striped_ledgers_have_runs_of_one_residue_each() -> None:
    journal = OurJournal(JOURNAL_ID, alignment=512)
    journal.group(*(entry_record(1, one) for one in range(12) if one % 3 != 1))
    runs = part_of(journal.file(), steps={1: 3}).after_mark
    assert [(run["step"], run["first"], run["last"]) for run in runs] == [(3, 0, 9), (3, 2, 11)]
    assert ids(runs) == [(1, one) for one in range(12) if one % 3 != 1]


@pytest.mark.sampled
@settings(max_examples=many(100, 40))
@given(sound())
def test_no_sound_journal_of_ours_has_a_flaw(sample: SealedJournal) -> None:
    part = part_of(sample.data)
    records = [item for item in items(sample.data) if not item.is_padding]
    unknown = [item for item in records if item.is_unknown]
    assert [flaw.offset for flaw in part.flaws] == [item.start for item in unknown]
    assert totals(part.after_mark) == slow_totals(records)


@pytest.mark.parametrize("size", [600, 5000])
def test_chunks_may_end_anywhere(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_chunks, "CHUNK_SIZE", size)
    check(part_of(everything().file()), everything().file(), 0)
    journal = plain()
    part = part_of(journal.file(), 0, BOOKIE)
    assert totals(part.after_mark) == slow_totals(items(journal.file()))
    assert part.flaws == ()


def test_runs_use_the_digest_that_each_entry_carries() -> None:
    clients = [AddingClient(number, kind) for number, kind in enumerate(DigestType)]
    journal = OurJournal(JOURNAL_ID, alignment=512)
    for one in range(20):
        journal.group(*(journal_format.encode_record(client.entry(one)) for client in clients))
    declared = DigestPolicy({client.ledger_id: client.digest_type for client in clients}, DigestType.CRC32C)
    undeclared = DigestPolicy({}, DigestType.CRC32C, frozenset(range(4)))
    types = {client.ledger_id: client.digest_type for client in clients}
    for policy in (declared, undeclared):
        part = part_of(journal.file(), 0, policy)
        assert totals(part.after_mark) == slow_totals(items(journal.file()), types)
        assert part.types == {one: kind for one, kind in types.items() if kind is not DigestType.CRC32C}


# ── a bookie's journal ───────────────────────────────────────────────────────────────────────────────────


def plain(version: int = 6) -> BookieJournal:
    journal = BookieJournal(JOURNAL_ID, version)
    journal.flush(journal_format.encode_ledger_key(1, b"k" * 20), *(entry_record(1, one) for one in range(5)))
    for one in range(5, 40):
        journal.flush(entry_record(1, one, b"p" * one * 7), entry_record(2, one - 5))
    return journal.flush(journal_format.encode_fence(1), entry_record(1, 40))


@pytest.mark.parametrize("version", [4, 5, 6])
def test_a_bookie_s_journal_is_read_whole_from_any_mark(version: int) -> None:
    journal = plain(version)
    for mark in (0, journal.ends[3], journal.ends[-1]):
        part = part_of(journal.file(), mark, BOOKIE)
        records = items(journal.file())
        assert part.flaws == ()
        assert totals(part.before_mark) == slow_totals(item for item in records if item.start < mark)
        assert totals(part.after_mark) == slow_totals(item for item in records if item.start >= mark)


def test_entries_with_macs_are_counted_without_the_password_and_verified_with_it() -> None:
    client = AddingClient(7, DigestType.MAC, PASSWORD)
    journal = BookieJournal(JOURNAL_ID).flush(
        *(journal_format.encode_record(client.entry(one)) for one in range(30))
    )
    assert part_of(journal.file(), 0, BOOKIE).unverified == {7: 30}
    known = part_of(journal.file(), 0, DigestPolicy(passwords={7: PASSWORD}))
    assert (known.unverified, known.types) == ({}, {7: DigestType.MAC})


# ── where the mark is ────────────────────────────────────────────────────────────────────────────────────


def boundaries(data: bytes) -> set[int]:
    return {place for item in items(data) for place in (item.start, item.end)}


def test_our_mark_is_at_a_group_or_reported() -> None:
    journal = everything()
    good = {512, *journal.ends}
    for mark in range(513, journal.end, 37):
        assert part_of(journal.file(), mark).marked_at_record is (mark in good), mark
    behind = part_of(journal.file(), journal.end + 600)
    assert behind.marked_at_record is not True
    for mark in good:
        assert part_of(journal.file(), mark).marked_at_record is True
    assert part_of(journal.file(), len(journal.file())).marked_at_record is True
    assert part_of(journal.file(), len(journal.file()) + 4096).marked_at_record is True


@pytest.mark.sampled
@pytest.mark.parametrize("version", [4, 6])
def test_a_bookie_s_mark_is_at_a_record_or_reported(version: int) -> None:
    journal = plain(version)
    end = len(journal.data)
    good = boundaries(bytes(journal.data))
    first = 512 if version > 4 else 8
    marks = sorted({*range(first, end + 600, 97), *good, end + 4, len(journal.file())})
    for mark in every(3, marks):
        is_good = mark in good or mark >= len(journal.file()) or (version > 4 and mark == end + 4)
        assert part_of(journal.file(), mark, BOOKIE).marked_at_record is is_good, mark


def test_a_mark_inside_a_sound_group_causes_no_flaws() -> None:
    journal = everything()
    part = part_of(journal.file(), journal.ends[0] + 20)
    assert (part.marked_at_record, part.flaws, part.tail) == (False, (), ())


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 7, 511])
def test_a_journal_shorter_than_its_header_holds_nothing(size: int) -> None:
    part = part_of(everything().file()[:size])
    assert (part.records, part.flaws, part.tail) == (0, (), ())
    assert part.scan.stop == EndOfData(0)


def test_every_byte_is_reported_to_the_throttle_once(tmp_path: Path) -> None:
    journal = OurJournal(JOURNAL_ID, size=3 << 20).group(entry_record(1, 0))
    path = tmp_path / "5.txn"
    path.write_bytes(journal.file())
    read: list[int] = []
    ScanJournal(str(path), JOURNAL_ID, 0, {}, OURS).run(ReadThrottle(read.append))
    assert sum(read) == 3 << 20


def test_an_entry_larger_than_a_chunk_is_taken() -> None:
    journal = OurJournal(JOURNAL_ID, size=5 << 20)
    journal.group(entry_record(1, 0, b"x" * (3 << 20)), entry_record(1, 1))
    assert ids(part_of(journal.file()).after_mark) == [(1, 0), (1, 1)]
    theirs = BookieJournal(JOURNAL_ID, size=5 << 20)
    theirs.flush(entry_record(1, 0, b"x" * (3 << 20)), entry_record(1, 1))
    assert ids(part_of(theirs.file(), 0, BOOKIE).after_mark) == [(1, 0), (1, 1)]


def test_an_entry_without_a_whole_head_is_counted() -> None:
    journal = OurJournal(JOURNAL_ID, alignment=512)
    journal.group(journal_format.encode_record(entry_bytes(1, 0)[:20]), entry_record(1, 1))
    part = part_of(journal.file())
    assert totals(part.after_mark) == slow_totals(items(journal.file()))
