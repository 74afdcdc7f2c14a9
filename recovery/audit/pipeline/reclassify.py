"""Ledgers whose digest type other files determine: a bookie does not store it anywhere.

Each range infers the types from its own entries. If it has few (one entry, and that one damaged), it may have
guessed wrong or not at all. The majority of the ledger's entries in all files decides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.model.scan_results import FlawKind
from storage.entry.model import DigestType
from storage.entry.read_result import Damaged, Torn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.audit.model.runs import Runs
    from recovery.audit.model.scan_results import FlawAt, LogPart
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


def reclassify(results: ScanResults) -> Reclassification:
    """Return what has to be read again, and with which types."""
    logs = [
        (part, list(_evidence(part.runs, part.types, part.unverified, part.flaws))) for part in _logs(results)
    ]
    journals = [
        (part.journal_id, list(_evidence(runs, part.types, part.unverified, part.flaws)))
        for part in results.journals.values()
        for runs in (np.concatenate([part.before_mark, part.after_mark]),)
    ]
    types = _decided([one for _, evidence in (*logs, *journals) for one in evidence])
    return Reclassification(
        types,
        tuple(
            part
            for part, evidence in logs
            if any(_differs(one, types) for one in evidence) or _may_find_more(part, evidence, types)
        ),
        frozenset(number for number, evidence in journals if any(_differs(one, types) for one in evidence)),
    )


def _logs(results: ScanResults) -> Iterator[LogPart]:
    for parts in results.logs.values():
        yield from parts


def _evidence(
    runs: Runs, types: Mapping[int, DigestType], unverified: Mapping[int, int], flaws: tuple[FlawAt, ...]
) -> Iterator[_LedgerEvidence]:
    doubted = {flaw.ledger_id for flaw in flaws if flaw.kind is FlawKind.DOUBT}
    runs = runs[np.argsort(runs["ledger"], kind="stable")]
    ledgers, begins = np.unique(runs["ledger"], return_index=True)
    if not len(ledgers):
        return
    good = np.add.reduceat(runs["count"] - runs["bad"], begins)
    for ledger_id, count in zip(ledgers.tolist(), good.tolist(), strict=True):
        unproven = unverified.get(ledger_id, 0)
        kind = types.get(ledger_id, DigestType.CRC32C)
        yield _LedgerEvidence(ledger_id, kind, max(0, count - unproven), unproven, ledger_id in doubted)


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
