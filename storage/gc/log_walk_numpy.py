"""Finds records of one size that follow each other, with numpy."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PREFIX = np.dtype([("length", ">i4"), ("ledger_id", ">i8"), ("entry_id", ">i8")])
_LENGTH_WORD_SIZE = 4


def following(data: memoryview, at: int, size: int, count_max: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the ledger and the ids of each run of records of this size from `at` on.

    In a run the ids of one ledger ascend. The first record that is no entry of this size ends the last run.
    """
    records = np.ndarray(count_max, _PREFIX, cast("Any", data), at, (size,))
    ledgers, ids = records["ledger_id"].astype(np.int64), records["entry_id"].astype(np.int64)
    good = records["length"] == size - _LENGTH_WORD_SIZE
    good &= (ledgers >= 0) & (ids >= 0)
    count = count_max if good.all() else int(good.argmin())
    ledgers, ids = ledgers[:count], ids[:count]
    begins = np.flatnonzero((ledgers[1:] != ledgers[:-1]) | (ids[1:] <= ids[:-1])) + 1
    for start, end in pairwise((0, *begins.tolist(), count)):
        first_id, last_id = ids.item(start), ids.item(end - 1)
        if last_id - first_id == end - 1 - start:
            yield ledgers.item(start), range(first_id, last_id + 1)
        else:
            yield ledgers.item(start), ids[start:end].tolist()
