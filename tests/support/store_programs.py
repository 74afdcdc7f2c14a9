"""Our store as programs to be killed, where one question alone is asked of what is left."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from recovery.proving.opened import Opened
from recovery.proving.sitting import Sitting

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.crashlab.history import Ctx


def two_sittings(root: Path, ctx: Ctx) -> None:
    """Adds that overlap checkpoints, a clean close; then more, and no close."""
    numbers = count(1)
    with Sitting(root, ctx, numbers) as first:
        first.append(1, 100, 900)
        first.append_many(2, 300, 300, 300)
        first.append(1, 900, 900, 900)  # the table is full: a checkpoint has begun
        for number in first.steps():
            if number < 6:
                first.append(3, 200)
        first.place(4, 7)
        first.close()
    with Sitting(root, ctx, numbers) as second:
        second.append(2, 50)
        second.checkpoint()
        second.place(4, 3)


def found_index(root: Path) -> str:
    """Opens, and tells what became of the index."""
    with Opened(root, count(1 << 32)) as opened:
        return opened.store.opened.index.name
