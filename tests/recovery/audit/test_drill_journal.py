"""Entries of a journal one by one: the same that its runs are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fixtures
import numpy as np
import pytest

from recovery.audit.drill_journal import DrillJournal
from recovery.audit.journal_scan import ScanJournal
from recovery.audit.task import Pace
from recovery.audit.ways import Ways
from recovery.verify.runs import RUN, merged, mix
from storage.entry import DigestType

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.verify.entries import Entries
    from recovery.verify.runs import Runs


def as_runs(entries: Entries) -> Runs:
    runs = np.zeros(len(entries), dtype=RUN)
    for name in ("file", "ledger", "size"):
        runs[name] = entries[name]
    runs["first"] = runs["last"] = entries["entry"]
    runs["count"], runs["step"] = 1, 1
    runs["places"] = mix(entries["ledger"], entries["entry"], entries["offset"])
    runs["digests"] = np.where(
        entries["good"], mix(entries["ledger"], entries["entry"], entries["digest"]), 0
    )
    runs["bad"] = ~entries["good"]
    return merged([runs])


@pytest.mark.parametrize("name", ["02a_crash_journal_only", "07_journal_v6_crash", "08_digests"])
def test_it_finds_what_the_scan_has_summed_up(name: str) -> None:
    passwords = fixtures.passwords(name)
    for path in fixtures.journals(name):
        journal_id = int(path.stem, 16)
        ways = Ways(passwords=passwords)
        part = ScanJournal(str(path), journal_id, 0, {}, ways, {}).run(Pace())
        ledgers = frozenset(np.unique(part.behind["ledger"]).tolist())
        types = {one: part.types.get(one, DigestType.CRC32C) for one in ledgers}
        known = Ways(declared=types, passwords=passwords)
        scan = part.scan
        task = DrillJournal(str(path), journal_id, scan.start, scan.kept.end, ledgers, known, {})
        assert as_runs(task.run(Pace())).tolist() == part.behind.tolist()


def test_other_ledgers_and_what_was_deleted_are_left_out() -> None:
    (path,) = fixtures.journals("02a_crash_journal_only")
    whole = drilled(path, frozenset({1, 2}), {})
    assert set(whole["ledger"].tolist()) == {1, 2}
    assert set(drilled(path, frozenset({2}), {})["ledger"].tolist()) == {2}
    offset = int(whole["offset"][len(whole) // 2])
    behind = drilled(path, frozenset({1, 2}), {1: offset})
    kept = whole[(whole["ledger"] == 2) | (whole["offset"] >= offset)]
    assert behind.tolist() == kept.tolist()
    assert len(kept) < len(whole)


def test_it_ends_where_it_is_told_to() -> None:
    (path,) = fixtures.journals("02a_crash_journal_only")
    whole = drilled(path, frozenset({1}), {})
    assert drilled(path, frozenset({1}), {}, int(whole["offset"][5])).tolist() == whole[:5].tolist()


def drilled(path: Path, ledgers: frozenset[int], dead: dict[int, int], end: int = 1 << 40) -> Entries:
    ways = Ways(declared=dict.fromkeys(ledgers, DigestType.CRC32C))
    return DrillJournal(str(path), int(path.stem, 16), 0, end, ledgers, ways, dead).run(Pace())
