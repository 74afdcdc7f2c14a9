"""Entries and index rows as numpy arrays, one row each: used where runs of two sides disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    EntryArray = np.ndarray[Any, Any]
    RowArray = np.ndarray[Any, Any]

ENTRY = np.dtype(
    [
        ("file", "<i8"),  # id of the entry log or journal
        ("offset", "<i8"),  # of the record's length word
        ("size", "<i8"),  # of the record, length word included
        ("ledger", "<i8"),
        ("entry", "<i8"),
        ("confirmed", "<i8"),  # the last add confirmed that it carries
        ("length", "<i8"),
        ("digest", "<u8"),  # as `recovery.audit.model.runs` counts it
        ("good", "?"),  # whether it carries the digest of its bytes, as far as known
    ]
)

ROW = np.dtype([("ledger", "<i8"), ("entry", "<i8"), ("location", "<i8")])
"""One row of the index. The location is packed as it is stored."""


def no_entries() -> EntryArray:
    return np.empty(0, dtype=ENTRY)


def no_rows() -> RowArray:
    return np.empty(0, dtype=ROW)
