"""Runs: entries of one ledger with consecutive ids as one row, whatever their number.

A row has two fingerprints, each the XOR of one number for every entry: `places` of the locations, `digests`
of the digests. Two sides that hold the same entries have the same counts and fingerprints, however their rows
are cut, so that a few rows are compared instead of millions of entries. XOR was chosen because neither order
nor cutting matters to it, and because it never overflows.

`digests` takes as an entry's digest the CRC-32C or CRC-32 that it carries, the first eight bytes of a MAC as
a big-endian number, and for an entry without a digest the CRC-32C of all its bytes.

With a `step` above 1 the ids of a run are that far apart: a store that holds two of every three entries then
has one long run for each residue, instead of one run for every two entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Fingerprints = np.ndarray[Any, np.dtype[np.uint64]]
    Mask = np.ndarray[Any, np.dtype[np.bool_]]
    Runs = np.ndarray[Any, Any]

RUN = np.dtype(
    [
        ("file", "<i8"),  # id of the entry log or journal
        ("ledger", "<i8"),
        ("step", "<i8"),
        ("first", "<i8"),
        ("last", "<i8"),
        ("count", "<i8"),
        ("size", "<i8"),  # bytes of the records, length words included; 0 where only the index was read
        ("places", "<u8"),
        ("digests", "<u8"),
        ("bad", "<i8"),  # entries among them whose digest does not match: not among `digests`
    ]
)


def no_runs() -> Runs:
    return np.empty(0, dtype=RUN)


def merged(parts: Iterable[Runs]) -> Runs:
    """Return the runs of all parts, sorted by file, ledger, step, residue and first id, with neighbours
    joined.

    Runs that overlap are not joined, so that an entry that is stored twice remains visible.
    """
    rows = [part for part in parts if len(part)]
    if not rows:
        return no_runs()
    runs: Runs = np.concatenate(rows)
    residue = runs["first"] % runs["step"]
    order = np.lexsort((runs["last"], runs["first"], residue, runs["step"], runs["ledger"], runs["file"]))
    runs, residue = runs[order], residue[order]
    goes_on = np.zeros(len(runs), dtype=bool)
    goes_on[1:] = runs["first"][1:] == runs["last"][:-1] + runs["step"][1:]
    for column in (runs["file"], runs["ledger"], runs["step"], residue):
        goes_on[1:] &= column[1:] == column[:-1]
    return put_together(runs, np.flatnonzero(~goes_on))


def put_together(runs: Runs, begins: Numbers) -> Runs:
    together = runs[begins].copy()
    ends = np.append(begins[1:], len(runs)) - 1
    together["last"] = runs["last"][ends]
    for column in ("count", "size", "bad"):
        together[column] = np.add.reduceat(runs[column], begins)
    for column in ("places", "digests"):
        together[column] = np.bitwise_xor.reduceat(runs[column], begins)
    return together
