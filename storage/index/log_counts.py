"""How many locations of an index are in each log. With numpy if it is installed; the results are the same.

numpy is never imported before the first call.
"""

from __future__ import annotations

import struct
from collections import Counter
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.entry.digest import Buffer

_OF_PAIR = struct.Struct(">16xI4x")
"""The log id in a value that its key precedes."""

_OF_VALUE = struct.Struct(">8xI4x")
"""The log id in a value."""


class _Kernel(Protocol):
    def count(self, items: Buffer, size: int) -> Mapping[int, int]:
        """Count the log ids in items of this size, each with its location at the end."""


@cache
def _numpy_kernel() -> _Kernel | None:
    if find_spec("numpy") is None:
        return None
    module: _Kernel = import_module("storage.index.log_counts_numpy")
    return module


def of_pairs(pairs: Buffer) -> Mapping[int, int]:
    """Return the number of locations by log id, from values that their keys precede."""
    return _count(pairs, _OF_PAIR)


def of_values(values: Buffer) -> Mapping[int, int]:
    """Return the number of locations by log id, from values."""
    return _count(values, _OF_VALUE)


def _count(items: Buffer, item: struct.Struct) -> Mapping[int, int]:
    if (kernel := _numpy_kernel()) is not None:
        return kernel.count(items, item.size)
    return count_plainly(items, item)


def count_plainly(items: Buffer, item: struct.Struct) -> Mapping[int, int]:
    """Return the number of locations by log id, without numpy."""
    return Counter(chain.from_iterable(item.iter_unpack(items)))
