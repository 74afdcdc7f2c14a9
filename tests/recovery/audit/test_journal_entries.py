"""Entries of a journal one by one: the entries that its runs consist of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fixtures
import numpy as np
import pytest

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.task import ReadThrottle
from recovery.audit.model.fingerprint import fingerprints
from recovery.audit.model.runs import RUN, merged
from recovery.audit.scan.journal import ScanJournal
from recovery.audit.scan.journal_entries import ReadJournalEntries
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.audit.model.entry_columns import EntryArray
    from recovery.audit.model.runs import Runs


def as_runs(entries: EntryArray) -> Runs:
    runs = np.zeros(len(entries), dtype=RUN)
    for name in ("file", "ledger", "size"):
        runs[name] = entries[name]
    runs["first"] = runs["last"] = entries["entry"]
    runs["count"], runs["step"] = 1, 1
    runs["places"] = fingerprints(entries["ledger"], entries["entry"], entries["offset"])
    runs["digests"] = np.where(
        entries["good"], fingerprints(entries["ledger"], entries["entry"], entries["digest"]), 0
    )
    runs["bad"] = ~entries["good"]
    return merged([runs])


@pytest.mark.parametrize("name", ["02a_crash_journal_only", "07_journal_v6_crash", "08_digests"])
def test_the_entries_add_up_to_the_runs_of_the_journal_scan(name: str) -> None:
    passwords = fixtures.passwords(name)
    for path in fixtures.journals(name):
        journal_id = int(path.stem, 16)
        policy = DigestPolicy(passwords=passwords)
        part = ScanJournal(str(path), journal_id, 0, {}, policy, {}).run(ReadThrottle())
        ledgers = frozenset(np.unique(part.after_mark["ledger"]).tolist())
        types = {one: part.types.get(one, DigestType.CRC32C) for one in ledgers}
        known = DigestPolicy(declared=types, passwords=passwords)
        scan = part.scan
        task = ReadJournalEntries(str(path), journal_id, scan.start, scan.kept.end, ledgers, known, {})
        assert as_runs(task.run(ReadThrottle())).tolist() == part.after_mark.tolist()


def test_other_ledgers_and_deleted_entries_are_left_out() -> None:
    (path,) = fixtures.journals("02a_crash_journal_only")
    whole = entries_read(path, frozenset({1, 2}), {})
    assert set(whole["ledger"].tolist()) == {1, 2}
    assert set(entries_read(path, frozenset({2}), {})["ledger"].tolist()) == {2}
    offset = int(whole["offset"][len(whole) // 2])
    behind = entries_read(path, frozenset({1, 2}), {1: offset})
    kept = whole[(whole["ledger"] == 2) | (whole["offset"] >= offset)]
    assert behind.tolist() == kept.tolist()
    assert len(kept) < len(whole)


def test_reading_ends_at_the_given_offset() -> None:
    (path,) = fixtures.journals("02a_crash_journal_only")
    whole = entries_read(path, frozenset({1}), {})
    assert entries_read(path, frozenset({1}), {}, int(whole["offset"][5])).tolist() == whole[:5].tolist()


def entries_read(path: Path, ledgers: frozenset[int], dead: dict[int, int], end: int = 1 << 40) -> EntryArray:
    policy = DigestPolicy(declared=dict.fromkeys(ledgers, DigestType.CRC32C))
    return ReadJournalEntries(str(path), int(path.stem, 16), 0, end, ledgers, policy, dead).run(
        ReadThrottle()
    )
