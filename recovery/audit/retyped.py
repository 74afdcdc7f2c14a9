"""Ledgers whose digest type one file did not tell, and others do: a bookie writes it down nowhere.

Each range infers by itself, from what it holds. Where that was little (one entry, and that one damaged) it
may have guessed wrong, or not at all; what most entries of the ledger say in all files together counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recovery.verify.parts import FlawKind
from storage.entry import DigestType
from storage.outcome import Damaged, Torn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.audit.gather import Gathered
    from recovery.verify.parts import FlawAt, LogPart
    from recovery.verify.runs import Runs

_VERIFIED_VOTES = 16
"""A digest that matches says more than a width that fits."""

_CHECKSUMS = frozenset({DigestType.CRC32C, DigestType.CRC32})


@dataclass(frozen=True, slots=True)
class Told:
    """What all files together tell, and which parts have assumed something else."""

    types: Mapping[int, DigestType]
    logs: tuple[LogPart, ...]
    journals: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one part has assumed of one ledger."""

    ledger_id: int
    kind: DigestType
    verified: int
    unverified: int
    is_doubted: bool


def retyped(gathered: Gathered) -> Told:
    """What has to be read again, and how."""
    logs = [
        (part, list(_seen(part.runs, part.types, part.unverified, part.flaws))) for part in _logs(gathered)
    ]
    journals = [
        (part.journal_id, list(_seen(runs, part.types, part.unverified, part.flaws)))
        for part in gathered.journals.values()
        for runs in (np.concatenate([part.before, part.behind]),)
    ]
    types = _decided([one for _, seen in (*logs, *journals) for one in seen])
    return Told(
        types,
        tuple(
            part
            for part, seen in logs
            if any(_differs(one, types) for one in seen) or _may_find_more(part, seen, types)
        ),
        frozenset(number for number, seen in journals if any(_differs(one, types) for one in seen)),
    )


def _logs(gathered: Gathered) -> Iterator[LogPart]:
    for parts in gathered.logs.values():
        yield from parts


def _seen(
    runs: Runs, types: Mapping[int, DigestType], unverified: Mapping[int, int], flaws: tuple[FlawAt, ...]
) -> Iterator[_Seen]:
    doubted = {flaw.ledger_id for flaw in flaws if flaw.kind is FlawKind.DOUBT}
    runs = runs[np.argsort(runs["ledger"], kind="stable")]
    ledgers, begins = np.unique(runs["ledger"], return_index=True)
    if not len(ledgers):
        return
    good = np.add.reduceat(runs["count"] - runs["bad"], begins)
    for ledger_id, count in zip(ledgers.tolist(), good.tolist(), strict=True):
        unproven = unverified.get(ledger_id, 0)
        kind = types.get(ledger_id, DigestType.CRC32C)
        yield _Seen(ledger_id, kind, max(0, count - unproven), unproven, ledger_id in doubted)


def _decided(seen: list[_Seen]) -> dict[int, DigestType]:
    votes: defaultdict[int, Counter[DigestType]] = defaultdict(Counter)
    for one in seen:
        if one.verified:
            votes[one.ledger_id][one.kind] += _VERIFIED_VOTES * one.verified
        elif one.unverified and one.kind not in _CHECKSUMS:
            votes[one.ledger_id][one.kind] += one.unverified
    return {ledger_id: max(counted, key=counted.__getitem__) for ledger_id, counted in votes.items()}


def _may_find_more(part: LogPart, seen: list[_Seen], types: Mapping[int, DigestType]) -> bool:
    """Whether behind damage may stand entries that only somebody recognises who knows their type."""
    is_damaged = isinstance(part.stop, Torn | Damaged) or any(
        flaw.kind is FlawKind.HOLE for flaw in part.flaws
    )
    others = {ledger_id for ledger_id, kind in types.items() if kind not in _CHECKSUMS}
    return is_damaged and not others <= {one.ledger_id for one in seen}


def _differs(one: _Seen, types: Mapping[int, DigestType]) -> bool:
    kind = types.get(one.ledger_id)
    if kind is None:
        return False
    return one.kind is not kind or one.is_doubted or (one.unverified > 0 and kind in _CHECKSUMS)
