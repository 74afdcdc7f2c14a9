"""Compare a bookie's own index with its entry logs: does every row lead to its entry?

The other direction is not checked, because logs keep entries that no row has any more: of deleted ledgers,
and earlier copies. Rows and entries are compared as runs: if count and fingerprint of a ledger in a log are
equal, they agree. Otherwise the ids in the index that the log does not have are found by intervals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.model.intervals import missing
from recovery.audit.model.store_facts import BookieIndexFacts, UnreadBookieIndex
from storage.disk import filenames
from storage.entry.read_result import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.intervals import IdRange
    from recovery.audit.model.runs import Runs
    from recovery.audit.model.store_facts import LogFacts, StoreFacts


def findings(facts: StoreFacts) -> Iterator[Finding]:
    """Yield the rows of a bookie's index that lead to no entry, and the logs that it misses."""
    match facts.bookie_index:
        case UnreadBookieIndex(why=why, is_damaged=True):
            yield KINDS["IDX-004"].at(file=filenames.BOOKIE_LOCATIONS, detail=why)
        case BookieIndexFacts() as index:
            if index.invalid:
                detail = f"{index.invalid} rows have a negative id or no place in a log"
                yield KINDS["IDX-004"].at(file=filenames.BOOKIE_LOCATIONS, detail=detail)
            logs = {log.log_id: log for log in facts.logs}
            for log_id in np.unique(index.runs["file"]).tolist():
                rows = index.runs[index.runs["file"] == log_id]
                if log_id in logs:
                    yield from _check_log(logs[log_id], rows)
                elif log_id not in facts.unread_logs:
                    yield from _missing_log(log_id, rows, index)


def _missing_log(log_id: int, rows: Runs, index: BookieIndexFacts) -> Iterator[Finding]:
    """Report a log that is gone. A running bookie removes the rows of deleted ledgers a little after the
    log.
    """
    severity = Severity.WARNING if index.is_changing else Severity.ERROR
    entries, ledgers = int(rows["count"].sum()), len(np.unique(rows["ledger"]))
    name = filenames.entry_log(log_id)
    words = f"missing; the bookie's index has {entries:,} entries of {ledgers:,} ledgers in it"
    yield KINDS["ELG-005"].at(severity=severity, file=name, detail=words)
    for lost in missing(rows, []):
        yield _lost(log_id, lost, "there is no such log", severity)


def _check_log(log: LogFacts, rows: Runs) -> Iterator[Finding]:
    """Report the rows that lead to no entry of a log that is there."""
    mine = np.unique(rows["ledger"]).tolist()
    for ledger_id in mine:
        some, there = rows[rows["ledger"] == ledger_id], log.runs[log.runs["ledger"] == ledger_id]
        same_count = int(some["count"].sum()) == int(there["count"].sum())
        if same_count and _places(some) == _places(there):
            continue
        lost = missing(some, [there])
        for ids in lost:
            yield _not_found(log, ids)
        if same_count and not lost:
            detail = f"{filenames.entry_log(log.log_id)}: its entries are there, at other places"
            yield KINDS["IDX-002"].at(
                file=filenames.BOOKIE_LOCATIONS,
                ledger_id=ledger_id,
                first_entry=int(some["first"].min()),
                last_entry=int(some["last"].max()),
                count=int(some["count"].sum()),
                detail=detail,
            )


def _not_found(log: LogFacts, lost: IdRange) -> Finding:
    if log.flaws or isinstance(log.stop, Damaged):
        return KINDS["ELG-007"].at(
            file=filenames.entry_log(log.log_id),
            ledger_id=lost.ledger_id,
            first_entry=lost.first,
            last_entry=lost.last,
            count=lost.entries,
            detail="the bookie's index has them in this log",
        )
    return _lost(log.log_id, lost, "the log does not have it", Severity.ERROR)


def _lost(log_id: int, lost: IdRange, why: str, severity: Severity) -> Finding:
    return KINDS["IDX-001"].at(
        severity=severity,
        file=filenames.BOOKIE_LOCATIONS,
        ledger_id=lost.ledger_id,
        first_entry=lost.first,
        last_entry=lost.last,
        count=lost.entries,
        detail=f"{filenames.entry_log(log_id)}: {why}",
    )


def _places(runs: Runs) -> int:
    return int(np.bitwise_xor.reduce(runs["places"])) if len(runs) else 0
