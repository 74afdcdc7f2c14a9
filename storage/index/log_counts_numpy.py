"""Counts the log ids of many locations with numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.entry.digest import Buffer

_LOCATION_SIZE = 8


def count(items: Buffer, size: int) -> Mapping[int, int]:
    """Count the log ids in items of this size, each with its location at the end."""
    number = len(items) // size
    if not number:
        return {}
    ids = np.ndarray(number, ">u4", cast("Any", items), size - _LOCATION_SIZE, (size,)).astype(np.int64)
    # Consecutive locations are mostly in the same log, so few runs are left to be counted.
    (changes,) = np.nonzero(ids[1:] != ids[:-1])
    starts = np.concatenate(([0], changes + 1))
    lengths = np.diff(np.append(starts, number))
    logs, which = np.unique(ids[starts], return_inverse=True)
    return dict(zip(logs.tolist(), np.bincount(which, lengths).astype(np.int64).tolist(), strict=True))
