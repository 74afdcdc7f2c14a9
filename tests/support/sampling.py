"""Let a sweep test run a sample of its cases in `make test`, and all cases in `make test-slow`.

A test that uses these has the marker `sampled`. `make test-slow` runs it again with WHOLE_SWEEPS=1.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

IS_WHOLE = os.environ.get("WHOLE_SWEEPS") == "1"


def every(step: int, cases: Iterable[T]) -> list[T]:
    """Return every `step`-th case; in a whole sweep all cases."""
    found = list(cases)
    return found if IS_WHOLE else found[::step]


def many(whole: int, sampled: int) -> int:
    """Return the number of cases: `whole` in a whole sweep, otherwise `sample`."""
    return whole if IS_WHOLE else sampled
