"""How much is measured: every scenario takes its sizes from here, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The default is a whole run, in less than twenty minutes; sizes are in bytes of payload."""

    name: str = "full"
    rounds: int = 7
    """Beside those for warming up, which are not counted."""
    warm_up: int = 1
    seed: int = 1
    turn_s: float = 0.4
    """How long each contender adds in a round."""
    turn_size: int = 64 * _MIB
    """How much it adds in a round at most."""
    raw_size: int = 256 * _MIB
    """The raw file; and our journals, where all of one is filled before it is used."""
    sustained_size: int = 192 * _MIB
    """What each contender adds in a round of a sustained run: some checkpoints and rolls of ours."""
    sustained_s: float = 5.0
    """For how long at most: on a slow disk the size is not reached."""
    sustained_rounds: int = 6
    concurrency: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    """The numbers of writers of which the curve consists."""
    told_rounds: int = 3
    """For what has no floor."""
    openings: int = 9
    opened_batches: int = 20
    replayed: int = 128 * _MIB
    """What the journals of a store hold at most beside two tables of the default size."""
    replayed_for_memory: int = 1024 * _MIB
    filled: int = 2000
    """Entries of each of a hundred ledgers that are read."""
    read: int = 50_000
    """How many are read one by one in a round."""
    newest: int = 100_000
    """How often a newest entry is read in a round."""
    crashed: int = 200_000_000
    """What everybody's journal holds when it is crashed, and opened again."""
    indexed: int = 1_000_000
    """Entries of which the index is weighed."""
    indexed_run: int = 50
    """How many of one ledger each of its checkpoints finds."""
    kept: int = 200_000
    """Entries of which the memory is weighed."""
    grown: tuple[int, ...] = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
    """Entries that one store has had when it is measured."""
    grown_window: int = 500_000
    """How many are added there for that: the default tables and journals are filled once."""
    grown_reads: int = 20_000


FULL = Effort()

QUICK = Effort(
    name="quick",
    rounds=3,
    turn_s=0.1,
    turn_size=32 * _MIB,
    raw_size=128 * _MIB,
    sustained_size=100 * _MIB,
    sustained_s=2.0,
    sustained_rounds=3,
    concurrency=(1, 8, 64),
    told_rounds=1,
    openings=3,
    replayed=64 * _MIB,
    replayed_for_memory=256 * _MIB,
    filled=200,
    read=20_000,
    newest=10_000,
    crashed=32_000_000,
    indexed_run=1000,
    grown=(100_000, 300_000),
    grown_window=100_000,
)
"""All rows in less than three minutes."""

TINY = Effort(
    name="tiny",
    rounds=1,
    warm_up=0,
    turn_s=0.01,
    turn_size=1 * _MIB,
    raw_size=8 * _MIB,
    sustained_size=1 * _MIB,
    sustained_rounds=1,
    concurrency=(1, 8, 64),
    told_rounds=1,
    openings=1,
    opened_batches=2,
    replayed=2 * _MIB,
    replayed_for_memory=2 * _MIB,
    filled=10,
    read=100,
    newest=100,
    crashed=1_000_000,
    indexed=10_000,
    kept=50_000,
    grown=(1000, 3000),
    grown_window=1000,
    grown_reads=100,
)
"""To see that a scenario works; its figures say nothing."""
