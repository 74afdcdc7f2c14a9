"""Copies one by one, where fingerprints could not vouch for them: which differ, and in what.

Two sound copies of an entry may differ in the last add confirmed that they carry, and so in their digests: a
client that recovers a ledger adds its last entries once more, with what it knows to be confirmed. What counts
is the payload and the length; those are read and compared. Copies that differ in them were never of one
writer, or one of them is not what he wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from recovery.verify.catalogue import KINDS
from recovery.verify.entries import ENTRY
from recovery.verify.finding import Severity
from recovery.verify.runs import RUN, merged
from storage import filenames
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.verify.entries import Entries, Rows
    from recovery.verify.finding import Finding
    from recovery.verify.replica_rules import Held, Judgement
    from recovery.verify.runs import Runs

    Copies = np.ndarray[Any, Any]

COPY = np.dtype([*ENTRY.descr, ("store", "<i8"), ("journaled", "?")])
"""A copy that a store serves: where it stands there. `file` is a journal's id where it is journaled."""

_SHIFT = 32


class Copy(NamedTuple):
    """One copy."""

    store: int
    journaled: bool
    file: int
    offset: int
    size: int
    ledger: int
    entry: int
    confirmed: int

    @property
    def name(self) -> str:
        """Of its file."""
        return filenames.journal(self.file) if self.journaled else filenames.entry_log(self.file)


class Reader(Protocol):
    """Fetches what of a copy has to be the same in every other one."""

    def substance(self, copy: Copy) -> bytes:
        """The length that it carries and its payload. May raise `OSError`."""


# ── what a store serves ──────────────────────────────────────────────────────────────────────────────────


def by_index(logs: Entries, journaled: Entries, rows: Rows, store: int) -> Copies:
    """What our store serves: what a journal from the mark on has, else what stands where the index says."""
    rows = np.sort(rows, order=["ledger", "entry", "location"])
    places = (logs["file"] << _SHIFT) | (logs["offset"] + LENGTH_WORD_SIZE)
    order = np.argsort(places, kind="stable")
    low, high = (np.searchsorted(places[order], rows["location"], side=side) for side in ("left", "right"))
    there = np.flatnonzero(low < high)
    found, rows = logs[order[low[there]]], rows[there]
    fits = (found["ledger"] == rows["ledger"]) & (found["entry"] == rows["entry"])
    return _latest(_copies(found[fits], store, journaled=journaled))


def by_order(logs: Entries, journaled: Entries, order: Sequence[int], store: int) -> Copies:
    """What a directory without an index of ours serves: the latest sound copy, journals behind all logs.

    `order` are the logs in the order in which they were written. Where no copy is sound the latest stands.
    """
    ranks = {log_id: rank for rank, log_id in enumerate(order)}
    rank = np.array([ranks[log_id] for log_id in logs["file"].tolist()], dtype=np.int64)
    return _latest(_copies(logs[np.lexsort((logs["offset"], rank))], store, journaled=journaled))


def _copies(logs: Entries, store: int, *, journaled: Entries) -> Copies:
    journaled = journaled[np.lexsort((journaled["offset"], journaled["file"]))]
    copies = np.empty(len(logs) + len(journaled), dtype=COPY)
    for name in ENTRY.names or ():
        copies[name] = np.concatenate([logs[name], journaled[name]])
    copies["store"] = store
    copies["journaled"] = np.arange(len(copies)) >= len(logs)
    return copies


def _latest(copies: Copies) -> Copies:
    """Of each entry the last sound copy, or the last one: `copies` are in the order in which they came."""
    copies = copies[np.lexsort((np.arange(len(copies)), copies["good"], copies["entry"], copies["ledger"]))]
    is_last = np.ones(len(copies), dtype=bool)
    is_last[:-1] = (copies["ledger"][1:] != copies["ledger"][:-1]) | (
        copies["entry"][1:] != copies["entry"][:-1]
    )
    latest: Copies = copies[is_last]
    return latest


def runs_of(copies: Copies, steps: Mapping[int, int]) -> Runs:
    """The runs of those that can be read: exactly what the store holds."""
    good = copies[copies["good"]]
    ledgers, numbers = np.unique(good["ledger"], return_inverse=True)
    runs = np.zeros(len(good), dtype=RUN)
    runs["ledger"], runs["first"], runs["last"] = good["ledger"], good["entry"], good["entry"]
    runs["step"] = np.array([steps[one] for one in ledgers.tolist()], dtype=np.int64)[numbers]
    runs["count"] = 1
    return merged([runs])


# ── whether copies agree ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Difference:
    """An entry whose copies differ. `words` are alike where entries one step apart differ alike."""

    ledger: int
    entry: int
    severity: Severity
    words: str
    copies: tuple[Copy, ...]


def differing(judgement: Judgement, copies: Copies, reader: Reader) -> Iterator[Finding]:
    """Of those that can be read and stand where they should: entries of which two copies differ."""
    compared = _due(judgement, copies[copies["good"]])
    found = [_difference(some, reader, judgement.held) for some in _unequal(compared)]
    steps = {one.ledger_id: one.step for one in judgement.ensembles}
    found.sort(key=lambda one: (one.ledger, one.entry % steps[one.ledger], one.entry))
    start = 0
    for at in range(1, len(found) + 1):
        if at == len(found) or not _goes_on(found[at - 1], found[at], steps[found[at].ledger]):
            yield _told(found[start:at], judgement.held, steps[found[start].ledger])
            start = at


def _due(judgement: Judgement, copies: Copies) -> Copies:
    """Those on a store that should hold them: nobody reads the others."""
    spans = judgement.spans
    numbers = spans.ledgers.numbers(copies["ledger"])
    copies, numbers = copies[numbers >= 0], numbers[numbers >= 0]
    span = spans.of_entries(numbers, copies["entry"])
    due: Copies = copies[spans.columns(span, copies["entry"] % spans.step[span], copies["store"]) >= 0]
    return due


def _unequal(copies: Copies) -> Iterator[list[Copy]]:
    """The copies of each entry that do not all carry the same digest, in the order of the stores."""
    copies = copies[np.lexsort((copies["store"], copies["entry"], copies["ledger"]))]
    differs = (copies["digest"][1:] != copies["digest"][:-1]) | (copies["size"][1:] != copies["size"][:-1])
    same = (copies["ledger"][1:] == copies["ledger"][:-1]) & (copies["entry"][1:] == copies["entry"][:-1])
    at = np.flatnonzero(differs & same)
    wanted = np.unique(copies[["ledger", "entry"]][at])
    some = copies[np.isin(copies[["ledger", "entry"]], wanted)] if len(wanted) else copies[:0]
    rows = some[list(Copy._fields)].tolist()
    for _, group in groupby((Copy(*row) for row in rows), lambda copy: (copy.ledger, copy.entry)):
        yield list(group)


def _difference(copies: list[Copy], reader: Reader, held: Sequence[Held]) -> _Difference:
    kinds: dict[bytes, list[str]] = {}
    for copy in copies:
        kinds.setdefault(reader.substance(copy), []).append(held[copy.store].name)
    severity = Severity.ERROR if len(kinds) > 1 else Severity.INFORMATION
    words = " against ".join(", ".join(names) for names in kinds.values())
    if len(kinds) == 1:
        words = f"{words}: the same payload, with another last add confirmed: a recovery added it again"
    return _Difference(copies[0].ledger, copies[0].entry, severity, words, tuple(copies))


def _goes_on(before: _Difference, after: _Difference, step: int) -> bool:
    return (before.ledger, before.entry + step, before.severity, before.words) == (
        after.ledger,
        after.entry,
        after.severity,
        after.words,
    )


def _told(alike: Sequence[_Difference], held: Sequence[Held], step: int) -> Finding:
    first = alike[0]
    places = (
        f"{held[one.store].name} {one.name}@{one.offset} (last add confirmed {one.confirmed})"
        for one in first.copies
    )
    spacing = [f"one entry in {step}"] if step > 1 and len(alike) > 1 else []
    leading = first.copies[0]
    return KINDS["RPL-002"].at(
        severity=first.severity,
        store=held[leading.store].store,
        file=leading.name,
        offset=leading.offset,
        ledger_id=first.ledger,
        first_entry=first.entry,
        last_entry=alike[-1].entry,
        count=len(alike),
        detail="; ".join([first.words, *spacing, f"entry {first.entry}: {', '.join(places)}"]),
    )


# ── how far an open ledger has come ──────────────────────────────────────────────────────────────────────


def confirmed(copies: Copies) -> dict[int, int]:
    """For each ledger the largest last add confirmed that a sound copy carries."""
    good = copies[copies["good"]]
    ledgers, places = np.unique(good["ledger"], return_inverse=True)
    most = np.full(len(ledgers), -1, dtype=np.int64)
    np.maximum.at(most, places, good["confirmed"])
    return dict(zip(ledgers.tolist(), most.tolist(), strict=True))
