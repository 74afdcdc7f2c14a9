"""Runs: entries of one ledger with consecutive ids, as one row, whatever their number.

A row has two fingerprints, each the XOR of a number for every entry: `places` of where it stands, `digests`
of what it is. Two sides that hold the same entries have the same counts and fingerprints, however their rows
are cut; whether they do is asked of a few rows instead of millions of entries. XOR, because neither order nor
cutting matters, and because it never overflows.

What `digests` takes for an entry's digest: the CRC-32C or CRC-32 that it carries, of a MAC its first eight
bytes, big-endian, and of an entry without a digest the CRC-32C of all its bytes.

With a `step` above 1 a run's ids are that far apart: a store that holds two of each three entries has runs of
one residue each, not one for every two entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Fingerprints = np.ndarray[Any, np.dtype[np.uint64]]
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

LEDGER_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
ENTRY_FACTOR = np.uint64(0xC2B2_AE3D_27D4_EB4F)
VALUE_FACTOR = np.uint64(0x1656_67B1_9E37_79F9)
STIR_FACTOR = np.uint64(0xBF58_476D_1CE4_E5B9)
HALF = np.uint64(32)
MOST = np.uint64(29)


def mix(ledgers: Any, entries: Any, values: Any) -> Fingerprints:
    """For each entry a number that tells it, and what belongs to it, from any other."""
    mixed = np.asarray(ledgers).astype(np.uint64) * LEDGER_FACTOR
    mixed = mixed ^ (np.asarray(entries).astype(np.uint64) * ENTRY_FACTOR)
    mixed = mixed + np.asarray(values).astype(np.uint64) * VALUE_FACTOR
    mixed ^= mixed >> HALF
    mixed *= STIR_FACTOR
    mixed ^= mixed >> MOST
    return mixed


def pack_place(log_id: int, offsets: Any) -> Numbers:
    """Places as the index holds them, from the offsets of entries' first bytes in a log."""
    packed: Numbers = np.asarray(offsets, dtype=np.int64) | np.int64(log_id << 32)
    return packed


def no_runs() -> Runs:
    return np.empty(0, dtype=RUN)


def merged(parts: Iterable[Runs]) -> Runs:
    """The runs of all parts: sorted by file, ledger, step, residue and first id, neighbours put together.

    Runs that overlap stay as they are: an entry that stands twice must be seen.
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
