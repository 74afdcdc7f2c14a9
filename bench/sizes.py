"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """The default is a run of a minute or two; sizes are in bytes."""

    rounds: int = 9
    appends: int = 1000
    batches: int = 20
    replayed: int = 128 * _MIB
    """What the journals of a store hold at most beside two tables of the default size."""
    replayed_for_memory: int = 1024 * _MIB
    raw_file: int = 64 * _MIB


TINY = Sizes(
    rounds=1, appends=2, batches=2, replayed=2 * _MIB, replayed_for_memory=2 * _MIB, raw_file=4 * _MIB
)
"""To see that a scenario works; its figures say nothing."""
