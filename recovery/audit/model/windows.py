"""Windows of entry ids: find the part of a large ledger about which logs and index disagree.

Runs show which ledgers disagree. For a ledger with very many entries each side sums up what it holds in
windows of a fixed number of ids: count, fingerprint and bytes. Windows with equal sums are not compared
further. Of the others, as many are compared together as fit into memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.model.fingerprint import fingerprints

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.audit.model.runs import Fingerprints, Mask, Numbers

    Sums = np.ndarray[Any, Any]

_BITS = 14
"""The number of low bits of an id inside a window. Fewer bits make more windows, more bits make
larger ones.
"""

SUM = np.dtype(
    [
        ("ledger", "<i8"),
        ("window", "<i8"),
        ("file", "<i8"),  # id of the entry log that holds them, or to which the index leads
        ("count", "<i8"),
        ("size", "<i8"),  # bytes of the records; 0 of the index
        ("places", "<u8"),  # as runs have it
        ("begin", "<i8"),  # in the log, the first byte; `end` is after the last; 0 in the index
        ("end", "<i8"),
    ]
)
_GROUP = ("ledger", "window", "file")


def no_sums() -> Sums:
    return np.empty(0, dtype=SUM)


def sums_of(ledgers: Numbers, entries: Numbers, locations: Numbers, **others: Numbers) -> Sums:
    """Sum up entries by window. `others` are columns that only one side has."""
    sums = np.zeros(len(ledgers), dtype=SUM)
    sums["ledger"], sums["window"], sums["file"] = ledgers, entries >> _BITS, locations >> 32
    sums["count"], sums["places"] = 1, fingerprints(ledgers, entries, locations)
    for name, column in others.items():
        sums[name] = column
    return merged_sums([sums])


def merged_sums(parts: Iterable[Sums]) -> Sums:
    """Return one row for each window of a ledger in a log."""
    sums: Sums = np.concatenate([no_sums(), *parts])
    if not len(sums):
        return sums
    sums = sums[np.lexsort([sums[name] for name in reversed(_GROUP)])]
    begins = np.flatnonzero(_changes(sums, _GROUP))
    found: Sums = sums[begins]
    for name in ("count", "size"):
        found[name] = np.add.reduceat(sums[name], begins)
    found["places"] = np.bitwise_xor.reduceat(sums["places"], begins)
    found["begin"] = np.minimum.reduceat(sums["begin"], begins)
    found["end"] = np.maximum.reduceat(sums["end"], begins)
    return found


def _changes(sums: Sums, names: Iterable[str]) -> Mask:
    changes = np.zeros(len(sums), dtype=bool)
    changes[:1] = True
    for name in names:
        changes[1:] |= sums[name][1:] != sums[name][:-1]
    return changes


class WindowSums:
    """Adds up sums as they come, a few thousand entries at a time."""

    _WAITING_MAX = 1 << 15

    def __init__(self) -> None:
        self._parts: list[Sums] = []
        self._waiting = 0

    def add(self, some: Sums) -> None:
        self._parts.append(some)
        self._waiting += len(some)
        if self._waiting > self._WAITING_MAX:
            self._parts, self._waiting = [merged_sums(self._parts)], 0

    def all(self) -> Sums:
        return merged_sums(self._parts)


# ── the windows that are compared ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, eq=False)
class WindowSet:
    """A set of windows."""

    keys: Fingerprints
    """A number for each window, ascending."""

    def hold(self, ledgers: Numbers, entries: Numbers) -> Mask:
        """Return which of the entries are in one of the windows."""
        keys = fingerprints(ledgers, entries >> _BITS, 0)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        held: Mask = self.keys[at] == keys
        return held


def windows_of(sums: Sums) -> WindowSet:
    return WindowSet(np.unique(fingerprints(sums["ledger"], sums["window"], 0)))


def portions(sums: Sums, count_max: int) -> Iterator[Sums]:
    """Yield the windows in the order of ids, in portions with at most `count_max` entries and rows."""
    sums = sums[np.lexsort((sums["window"], sums["ledger"]))]
    begins = np.append(np.flatnonzero(_changes(sums, _GROUP[:2])), len(sums))
    counts = np.append(0, sums["count"].cumsum())
    start = 0
    for window in range(1, len(begins)):
        after = begins[min(window + 1, len(begins) - 1)]
        if window == len(begins) - 1 or counts[after] - counts[begins[start]] > count_max:
            yield sums[begins[start] : begins[window]]
            start = window
