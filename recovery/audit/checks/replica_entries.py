"""Compare copies one by one where fingerprints could not decide: which of them differ, and how.

Two sound copies of an entry may differ in the last add confirmed that they carry, and so in their digests: a
client that recovers a ledger adds its last entries again, with the last add confirmed that it knows. Only the
payload and the length have to be equal, so these are read and compared. If they differ the copies come from
two writers, or one copy is not what was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from recovery.audit.checks.replica_copies import READ_COPIES
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.model import tables
from recovery.audit.model.entry_columns import ENTRY
from recovery.audit.model.runs import RUN, merged
from storage.disk import filenames
from storage.entry.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.entry_columns import EntryArray, RowArray
    from recovery.audit.model.runs import Runs

    Copies = np.ndarray[Any, Any]

COPY = np.dtype([*ENTRY.descr, ("store", "<i8"), ("journaled", "?")])
"""A copy that a store serves, and where it is stored. `file` is a journal id if it is in a journal."""

_SHIFT = 32


class EntryCopy(NamedTuple):
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
        """The name of the file that holds it."""
        return filenames.journal(self.file) if self.journaled else filenames.entry_log(self.file)


class CopyReader(Protocol):
    """Reads the part of a copy that has to be the same in every other copy."""

    def substance(self, copy: EntryCopy) -> bytes:
        """Return the length that it carries and its payload. May raise `OSError`."""


# ── what a store serves ──────────────────────────────────────────────────────────────────────────────────


def by_index(logs: EntryArray, journaled: EntryArray, rows: RowArray, store: int) -> Copies:
    """Return what a ledgerstore directory serves: entries in a journal from the mark on, otherwise what is
    stored where the index points.
    """
    rows = np.sort(rows, order=["ledger", "entry", "location"])
    places = (logs["file"] << _SHIFT) | (logs["offset"] + LENGTH_WORD_SIZE)
    order = np.argsort(places, kind="stable")
    low, high = (np.searchsorted(places[order], rows["location"], side=side) for side in ("left", "right"))
    there = np.flatnonzero(low < high)
    found, rows = logs[order[low[there]]], rows[there]
    fits = (found["ledger"] == rows["ledger"]) & (found["entry"] == rows["entry"])
    return _latest(_copies(found[fits], store, journaled=journaled))


def by_order(logs: EntryArray, journaled: EntryArray, order: Sequence[int], store: int) -> Copies:
    """Return what a directory without a ledgerstore index serves: the latest sound copy, journals after all
    logs.

    `order` lists the logs in the order in which they were written. If no copy is sound, the latest one is
    returned.
    """
    ranks = {log_id: rank for rank, log_id in enumerate(order)}
    rank = np.array([ranks[log_id] for log_id in logs["file"].tolist()], dtype=np.int64)
    return _latest(_copies(logs[np.lexsort((logs["offset"], rank))], store, journaled=journaled))


def _copies(logs: EntryArray, store: int, *, journaled: EntryArray) -> Copies:
    journaled = journaled[np.lexsort((journaled["offset"], journaled["file"]))]
    copies = np.empty(len(logs) + len(journaled), dtype=COPY)
    for name in ENTRY.names or ():
        copies[name] = np.concatenate([logs[name], journaled[name]])
    copies["store"] = store
    copies["journaled"] = np.arange(len(copies)) >= len(logs)
    return copies


def _latest(copies: Copies) -> Copies:
    """Return for each entry the last sound copy, or the last one. `copies` are in the order of arrival."""
    copies = copies[np.lexsort((np.arange(len(copies)), copies["good"], copies["entry"], copies["ledger"]))]
    is_last = np.ones(len(copies), dtype=bool)
    is_last[:-1] = (copies["ledger"][1:] != copies["ledger"][:-1]) | (
        copies["entry"][1:] != copies["entry"][:-1]
    )
    latest: Copies = copies[is_last]
    return latest


def runs_of(copies: Copies, steps: Mapping[int, int]) -> Runs:
    """Return runs of the copies that can be read: exactly what the store holds."""
    good = copies[copies["good"]]
    ledgers, numbers = np.unique(good["ledger"], return_inverse=True)
    runs = np.zeros(len(good), dtype=RUN)
    runs["ledger"], runs["first"], runs["last"] = good["ledger"], good["entry"], good["entry"]
    runs["step"] = np.array([steps[one] for one in ledgers.tolist()], dtype=np.int64)[numbers]
    runs["count"] = 1
    return merged([runs])


# ── whether copies are equal ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ReplicaStore:
    """A store that is compared: its name in the ensembles, and its path in findings."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class _CopyDifference:
    """An entry whose copies differ. `words` are equal if entries one step apart differ in the same way."""

    ledger: int
    entry: int
    severity: Severity
    words: str
    copies: tuple[EntryCopy, ...]


def readable(copies: Copies, stores: Sequence[ReplicaStore]) -> pa.Table:
    """Return the readable copies as rows of `READ_COPIES`, numbered as they are in the array."""
    (numbers,) = np.nonzero(copies["good"])
    good = copies[numbers]
    names = [store.name for store in stores]
    columns = {name: good[name] for name in ("ledger", "entry", "digest", "size")}
    store = tables.dictionary_column(names, good["store"])
    return READ_COPIES.joined([READ_COPIES.batch({**columns, "number": numbers, "store": store})])


def differences(
    copies: Copies, steps: Mapping[int, int], reader: CopyReader, stores: Sequence[ReplicaStore]
) -> Iterator[Finding]:
    """Yield findings of these copies, which differ from another one in their digest or their size. The copies
    of an entry follow one another, in the order of the stores.
    """
    rows = map(EntryCopy._make, copies[list(EntryCopy._fields)].tolist())
    found = [
        _difference(list(some), reader, stores)
        for _, some in groupby(rows, lambda copy: (copy.ledger, copy.entry))
    ]
    found.sort(key=lambda one: (one.ledger, one.entry % steps[one.ledger], one.entry))
    start = 0
    for at in range(1, len(found) + 1):
        if at == len(found) or not _goes_on(found[at - 1], found[at], steps[found[at].ledger]):
            yield _finding(found[start:at], stores, steps[found[start].ledger])
            start = at


def _difference(
    copies: list[EntryCopy], reader: CopyReader, stores: Sequence[ReplicaStore]
) -> _CopyDifference:
    kinds: dict[bytes, list[str]] = {}
    for copy in copies:
        kinds.setdefault(reader.substance(copy), []).append(stores[copy.store].name)
    severity = Severity.ERROR if len(kinds) > 1 else Severity.INFORMATION
    words = " against ".join(", ".join(names) for names in kinds.values())
    if len(kinds) == 1:
        words = f"{words}: the same payload, with a different last add confirmed from a recovery"
    return _CopyDifference(copies[0].ledger, copies[0].entry, severity, words, tuple(copies))


def _goes_on(before: _CopyDifference, after: _CopyDifference, step: int) -> bool:
    return (before.ledger, before.entry + step, before.severity, before.words) == (
        after.ledger,
        after.entry,
        after.severity,
        after.words,
    )


def _finding(alike: Sequence[_CopyDifference], stores: Sequence[ReplicaStore], step: int) -> Finding:
    first = alike[0]
    places = (
        f"{stores[one.store].name} {one.name}@{one.offset} (last add confirmed {one.confirmed})"
        for one in first.copies
    )
    spacing = [f"one entry in {step}"] if step > 1 and len(alike) > 1 else []
    leading = first.copies[0]
    return KINDS["RPL-002"].at(
        severity=first.severity,
        store=stores[leading.store].path,
        file=leading.name,
        offset=leading.offset,
        ledger_id=first.ledger,
        first_entry=first.entry,
        last_entry=alike[-1].entry,
        count=len(alike),
        detail="; ".join([first.words, *spacing, f"entry {first.entry}: {', '.join(places)}"]),
    )


# ── how far an open ledger is confirmed ──────────────────────────────────────────────────────────────


def confirmed(copies: Copies) -> dict[int, int]:
    """Return for each ledger the largest last add confirmed that a sound copy carries."""
    good = copies[copies["good"]]
    ledgers, places = np.unique(good["ledger"], return_inverse=True)
    most = np.full(len(ledgers), -1, dtype=np.int64)
    np.maximum.at(most, places, good["confirmed"])
    return dict(zip(ledgers.tolist(), most.tolist(), strict=True))
