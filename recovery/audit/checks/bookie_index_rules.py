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
from recovery.audit.model.intervals import NOTHING, Cover, covers
from recovery.audit.model.store_facts import BookieIndexFacts, UnreadBookieIndex
from storage.disk import filenames
from storage.entry.read_result import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.findings.finding import Finding
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
    for cover in _ids(rows):
        for first, last in zip(cover.firsts, cover.lasts, strict=True):
            yield _lost(
                log_id, cover.ledger_id, int(first), int(last), rows, "there is no such log", severity
            )


def _check_log(log: LogFacts, rows: Runs) -> Iterator[Finding]:
    """Report the rows that lead to no entry of a log that is there."""
    mine = np.unique(rows["ledger"]).tolist()
    for ledger_id in mine:
        some, there = rows[rows["ledger"] == ledger_id], log.runs[log.runs["ledger"] == ledger_id]
        same_count = int(some["count"].sum()) == int(there["count"].sum())
        if same_count and _places(some) == _places(there):
            continue
        lost = list(_missing(some, there))
        for first, last in lost:
            yield _not_found(log, ledger_id, first, last, some)
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


def _not_found(log: LogFacts, ledger_id: int, first: int, last: int, rows: Runs) -> Finding:
    if log.flaws or isinstance(log.stop, Damaged):
        return KINDS["ELG-007"].at(
            file=filenames.entry_log(log.log_id),
            ledger_id=ledger_id,
            first_entry=first,
            last_entry=last,
            count=_count(rows, first, last),
            detail="the bookie's index has them in this log",
        )
    return _lost(log.log_id, ledger_id, first, last, rows, "the log does not have it", Severity.ERROR)


def _lost(
    log_id: int, ledger_id: int, first: int, last: int, rows: Runs, why: str, severity: Severity
) -> Finding:
    return KINDS["IDX-001"].at(
        severity=severity,
        file=filenames.BOOKIE_LOCATIONS,
        ledger_id=ledger_id,
        first_entry=first,
        last_entry=last,
        count=_count(rows[rows["ledger"] == ledger_id], first, last),
        detail=f"{filenames.entry_log(log_id)}: {why}",
    )


def _count(rows: Runs, first: int, last: int) -> int:
    """Return how many entries the rows of one ledger have in a span of ids."""
    step = rows["step"]
    begin = np.maximum(rows["first"], first + (rows["first"] - first) % step)
    end = np.minimum(rows["last"], last)
    return int(np.maximum((end - begin) // step + 1, 0).sum())


def _places(runs: Runs) -> int:
    return int(np.bitwise_xor.reduce(runs["places"])) if len(runs) else 0


def _missing(rows: Runs, there: Runs) -> Iterator[tuple[int, int]]:
    """Yield the ids of one ledger that the index has and the log does not.

    The ids of a striped ledger are divided by its step, for each remainder by itself.
    """
    for step in np.unique(rows["step"]).tolist():
        found: list[tuple[int, int]] = []
        for remainder in range(step):
            mine, others = _turns(rows, step, remainder), _turns(there, step, remainder)
            for wanted in covers([mine]):
                have = next(covers([others]), Cover(wanted.ledger_id, NOTHING, NOTHING))
                for first, last in zip(wanted.firsts.tolist(), wanted.lasts.tolist(), strict=True):
                    found += [
                        (one * step + remainder, other * step + remainder)
                        for one, other in have.missing(first, last)
                    ]
        yield from sorted(found)


def _turns(runs: Runs, step: int, remainder: int) -> Runs:
    """Return the runs with this step and remainder as runs of consecutive numbers."""
    some: Runs = runs[(runs["step"] == step) & (runs["first"] % step == remainder)].copy()
    some["first"], some["last"] = some["first"] // step, some["last"] // step
    some["step"] = 1
    return some


def _ids(rows: Runs) -> Iterator[Cover]:
    """Yield for each ledger the spans of ids that its runs cover, whatever their steps are."""
    spans = rows.copy()
    spans["step"] = 1
    return covers([spans])
