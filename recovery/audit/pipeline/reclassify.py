"""Ledgers whose digest type other files determine: a bookie does not store it anywhere.

Each range infers the types from its own entries. If it has few (one entry, and that one damaged), it may have
guessed wrong or not at all. The majority of the ledger's entries in all files decides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.checks.texts import text
from recovery.audit.model.scan_results import FlawKind, JournalPart, LogPart
from storage.entry.model import DigestType
from storage.entry.read_result import Damaged, Torn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from recovery.audit.engines.sql import SqlEngine
    from recovery.audit.pipeline.merge import ScanResults

_VERIFIED_VOTES = 16
"""A matching digest counts more than a digest width that fits."""

_CHECKSUMS = frozenset({DigestType.CRC32C, DigestType.CRC32})


@dataclass(frozen=True, slots=True)
class Reclassification:
    """The types that all files together determine, and the parts that assumed another type."""

    types: Mapping[int, DigestType]
    logs: tuple[LogPart, ...]
    journals: frozenset[int]


@dataclass(frozen=True, slots=True)
class _LedgerEvidence:
    """The digest type that one part assumed for one ledger, with its evidence."""

    ledger_id: int
    kind: DigestType
    verified: int
    unverified: int
    is_doubted: bool


def reclassify(results: ScanResults, sql: Callable[[], SqlEngine]) -> Reclassification:
    """Return what has to be read again, and with which types. `sql` has the runs of all parts."""
    parts: list[LogPart | JournalPart] = [
        *chain.from_iterable(results.logs.values()),
        *results.journals.values(),
    ]
    doubted = {part.number: _doubted(part) for part in parts}
    asked = {ledger for part in parts for ledger in (*part.types, *part.unverified, *doubted[part.number])}
    if not asked:
        # Every ledger has CRC-32C digests everywhere, and no entry is unverified.
        return Reclassification({}, (), frozenset())
    good = _good_entries(sql(), asked)
    evidence = {
        part.number: [
            _LedgerEvidence(
                ledger,
                part.types.get(ledger, DigestType.CRC32C),
                max(0, count - part.unverified.get(ledger, 0)),
                part.unverified.get(ledger, 0),
                ledger in doubted[part.number],
            )
            for ledger, count in good.get(part.number, ())
        ]
        for part in parts
    }
    types = _decided(list(chain.from_iterable(evidence.values())))
    wrong = [part for part in parts if _is_wrong(part, evidence[part.number], types)]
    if wrong:
        types = dict.fromkeys(_known_ledgers(sql(), parts), DigestType.CRC32C) | types
    return Reclassification(
        types,
        tuple(part for part in wrong if isinstance(part, LogPart)),
        frozenset(part.journal_id for part in wrong if isinstance(part, JournalPart)),
    )


def _is_wrong(
    part: LogPart | JournalPart, evidence: list[_LedgerEvidence], types: Mapping[int, DigestType]
) -> bool:
    if any(_differs(one, types) for one in evidence):
        return True
    return isinstance(part, LogPart) and _may_find_more(part, evidence, types)


def _doubted(part: LogPart | JournalPart) -> set[int]:
    some = (flaw.ledger_id for flaw in part.flaws if flaw.kind is FlawKind.DOUBT)
    return {ledger for ledger in some if ledger is not None}


def _good_entries(sql: SqlEngine, ledgers: Iterable[int]) -> dict[int, list[tuple[int, int]]]:
    """Return for each part the ledgers among these that it has, each with the number of entries without a
    wrong digest.
    """
    sql.put_columns("asked_ledgers", {"ledger": np.array(sorted(ledgers), dtype=np.int64)})
    rows = groupby(sql.rows(text("evidence")), lambda row: row[0])
    return {part: [(ledger, good) for _, ledger, good in some] for part, some in rows}


def _known_ledgers(sql: SqlEngine, parts: Iterable[LogPart | JournalPart]) -> list[int]:
    numbers = [number for part in parts for number in (part.number, part.number + 1)]
    sql.put_columns("asked_parts", {"part": np.array(numbers, dtype=np.int64)})
    return [ledger for (ledger,) in sql.rows(text("known_ledgers"))]


def _decided(evidence: list[_LedgerEvidence]) -> dict[int, DigestType]:
    votes: defaultdict[int, Counter[DigestType]] = defaultdict(Counter)
    for one in evidence:
        if one.verified:
            votes[one.ledger_id][one.kind] += _VERIFIED_VOTES * one.verified
        elif one.unverified and one.kind not in _CHECKSUMS:
            votes[one.ledger_id][one.kind] += one.unverified
    return {ledger_id: max(counted, key=counted.__getitem__) for ledger_id, counted in votes.items()}


def _may_find_more(part: LogPart, evidence: list[_LedgerEvidence], types: Mapping[int, DigestType]) -> bool:
    """Return whether entries of another type, unknown to this part, may follow damage in it."""
    is_damaged = isinstance(part.stop, Torn | Damaged) or any(
        flaw.kind is FlawKind.HOLE for flaw in part.flaws
    )
    others = {ledger_id for ledger_id, kind in types.items() if kind not in _CHECKSUMS}
    return is_damaged and not others <= {one.ledger_id for one in evidence}


def _differs(one: _LedgerEvidence, types: Mapping[int, DigestType]) -> bool:
    kind = types.get(one.ledger_id)
    if kind is None:
        return False
    return one.kind is not kind or one.is_doubted or (one.unverified > 0 and kind in _CHECKSUMS)
