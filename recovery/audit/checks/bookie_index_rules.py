"""Check a bookie's own index against its entry logs: does every row lead to its entry?

The other direction is not checked, because logs keep entries that no row has any more: of deleted ledgers,
and earlier copies. `places.sql` finds the ledgers of which an index and a log have different entries, and
`missing_ids.sql` the ids that the log does not have.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, groupby
from typing import TYPE_CHECKING

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.model.store_facts import BookieIndexFacts, UnreadBookieIndex
from storage.disk import filenames
from storage.entry.read_result import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.audit.checks.store_checks import LostIds, OtherPlaces, StoreAnswers
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.store_facts import LogFacts, StoreFacts

_INDEX = filenames.BOOKIE_LOCATIONS


def findings(facts: StoreFacts, answers: StoreAnswers) -> Iterator[Finding]:
    """Yield the rows of a bookie's index that lead to no entry, and the logs that it misses."""
    match facts.bookie_index:
        case UnreadBookieIndex(why=why, is_damaged=True):
            yield KINDS["IDX-004"].at(file=_INDEX, detail=why)
        case BookieIndexFacts() as index:
            if index.invalid:
                detail = f"{index.invalid} rows have a negative id or no place in a log"
                yield KINDS["IDX-004"].at(file=_INDEX, detail=detail)
            yield from _check_rows(facts, index, answers)


def _check_rows(facts: StoreFacts, index: BookieIndexFacts, answers: StoreAnswers) -> Iterator[Finding]:
    # A running bookie removes the rows of deleted ledgers a little after the log.
    severity = Severity.WARNING if index.is_changing else Severity.ERROR
    logs = {log.log_id: log for log in facts.logs}
    lost: defaultdict[tuple[int, int], list[LostIds]] = defaultdict(list)
    for one in answers.not_in_log:
        lost[one.file, one.ledger].append(one)
    for log_id, some in groupby(answers.other_places, lambda one: one.file):
        places = list(some)
        if log_id in logs:
            for place in places:
                yield from _check_log(logs[log_id], place, lost[log_id, place.ledger])
        elif log_id not in facts.unread_logs:
            yield _missing_log(log_id, places, severity)
            for ids in chain.from_iterable(lost[log_id, place.ledger] for place in places):
                yield _lost(log_id, ids, "there is no such log", severity)


def _missing_log(log_id: int, places: list[OtherPlaces], severity: Severity) -> Finding:
    entries = sum(place.indexed for place in places)
    words = f"missing; the bookie's index has {entries:,} entries of {len(places):,} ledgers in it"
    return KINDS["ELG-005"].at(severity=severity, file=filenames.entry_log(log_id), detail=words)


def _check_log(log: LogFacts, place: OtherPlaces, lost: list[LostIds]) -> Iterator[Finding]:
    """Report the rows of a ledger that lead to no entry of a log that is there."""
    for ids in lost:
        yield _not_found(log, ids)
    if place.indexed == place.logged and not lost:
        yield KINDS["IDX-002"].at(
            file=_INDEX,
            ledger_id=place.ledger,
            first_entry=place.first_entry,
            last_entry=place.last_entry,
            count=place.indexed,
            detail=f"{filenames.entry_log(log.log_id)}: its entries are there, at other places",
        )


def _not_found(log: LogFacts, lost: LostIds) -> Finding:
    if log.flaws or isinstance(log.stop, Damaged):
        return KINDS["ELG-007"].at(
            file=filenames.entry_log(log.log_id),
            ledger_id=lost.ledger,
            first_entry=lost.first_entry,
            last_entry=lost.last_entry,
            count=lost.entries,
            detail="the bookie's index has them in this log",
        )
    return _lost(log.log_id, lost, "the log does not have it", Severity.ERROR)


def _lost(log_id: int, lost: LostIds, why: str, severity: Severity) -> Finding:
    return KINDS["IDX-001"].at(
        severity=severity,
        file=_INDEX,
        ledger_id=lost.ledger,
        first_entry=lost.first_entry,
        last_entry=lost.last_entry,
        count=lost.entries,
        detail=f"{filenames.entry_log(log_id)}: {why}",
    )
