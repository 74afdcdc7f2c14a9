"""Let a sweep test run a sample of its cases in `make test`, and all cases in `make test-slow`.

A test that uses these has the marker `sampled`. A sweep whose cases are rows of a table, each a test of its
own, says how many rows there are for each that runs: `sampled(one_of=6)`. The environment decides what runs:

    WHOLE_SWEEPS=1        all cases of all sweeps, as `make test-slow` does
    WHOLE_ROWS=1          all rows, each with its sample of cases
    SINGLE_ROWS=1         one row of each table, whether it is of a sweep or not
    LONG_TESTS=3:abc      a third of the longest tests; `abc` decides which
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

T = TypeVar("T")

IS_WHOLE = os.environ.get("WHOLE_SWEEPS") == "1"

LONG_S = 20
"""A test that says that it takes so many seconds is one of the longest."""


def every(step: int, cases: Iterable[T]) -> list[T]:
    """Return every `step`-th case; in a whole sweep all cases."""
    found = list(cases)
    return found if IS_WHOLE else found[::step]


def many(whole: int, sampled: int) -> int:
    """Return the number of cases: `whole` in a whole sweep, otherwise `sample`."""
    return whole if IS_WHOLE else sampled


def seconds(item: pytest.Item) -> int:
    """Return how long a test says that it takes."""
    mark = item.get_closest_marker("slow")
    return 0 if mark is None else int(mark.kwargs.get("seconds", 0))


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that do not run in this environment, although they were selected."""
    out: list[pytest.Item] = []
    if os.environ.get("SINGLE_ROWS") == "1":
        out += rows_left_out(items, {_table_of(item): len(items) for item in items})
    elif not IS_WHOLE and os.environ.get("WHOLE_ROWS") != "1":
        out += rows_left_out(items, _shares(items))
    share, _, seed = os.environ.get("LONG_TESTS", "1:").partition(":")
    long = [item for item in items if seconds(item) >= LONG_S]
    return out + _drawn(long, seed)[-(-len(long) // int(share)) :]


def rows_left_out(items: Sequence[pytest.Item], shares: dict[str, int]) -> list[pytest.Item]:
    """Return the rows that are not in the samples of their tables; `shares` says of how many rows one runs.

    The names decide, so that each process draws the same, and any combination of parameters may be in a
    sample. Of each table there is at least one row, so that a row that was asked for by name is run.
    """
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if _table_of(item) in shares:
            tables[_table_of(item)].append(item)
    return [row for name, rows in tables.items() for row in _drawn(rows, "")[-(-len(rows) // shares[name]) :]]


def _shares(items: Sequence[pytest.Item]) -> dict[str, int]:
    marks = ((item, item.get_closest_marker("sampled")) for item in items)
    return {
        _table_of(item): mark.kwargs["one_of"]
        for item, mark in marks
        if mark is not None and "one_of" in mark.kwargs
    }


def _table_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _drawn(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """Return the tests in an order that only their names and the seed decide."""
    return sorted(items, key=lambda item: crc32c.crc32c(f"{seed} {item.nodeid}".encode()))
