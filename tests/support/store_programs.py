"""Programs on our store for tests that kill them and then check one fact."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from recovery.proving.session import Session
from recovery.proving.store_under_test import StoreUnderTest

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.crashlab.record.history import Ctx


def two_sittings(root: Path, ctx: Ctx) -> None:
    """Add entries during checkpoints, close cleanly, open, add more, and do not close."""
    numbers = count(1)
    with Session(root, ctx, numbers) as first:
        first.append(1, 100, 900)
        first.append_many(2, 300, 300, 300)
        first.append(1, 900, 900, 900)  # the table is full: a checkpoint has begun
        for number in first.steps():
            if number < 6:
                first.append(3, 200)
        first.add_as_replica(4, 7)
        first.close()
    with Session(root, ctx, numbers) as second:
        second.append(2, 50)
        second.checkpoint()
        second.add_as_replica(4, 3)


def found_index(root: Path) -> str:
    """Open the store, and return the state in which the index was found."""
    with StoreUnderTest(root, count(1 << 32)) as opened:
        return opened.store.opened.index.name
