"""The sizes of a run. All scenarios take their sizes from here."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """Sizes of a run, in bytes of payload.

    The default is a full run, which takes less than twenty minutes.
    """

    name: str = "full"
    rounds: int = 7
    """Rounds that are counted, without the warm-up rounds."""
    warm_up: int = 1
    seed: int = 1
    turn_s: float = 0.4
    """Seconds that each contender adds in a round."""
    turn_size: int = 64 * _MIB
    """Maximum number of bytes that it adds in a round."""
    raw_size: int = 256 * _MIB
    """Size of the raw file, and of a journal that is filled completely before it is used."""
    sustained_size: int = 192 * _MIB
    """Bytes that each contender adds in a round of a sustained run, enough for some checkpoints and rolls."""
    sustained_s: float = 5.0
    """Maximum number of seconds of such a round, because a slow disk does not reach the size."""
    sustained_rounds: int = 6
    concurrency: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    """The numbers of writers on the curve."""
    rounds_without_floor: int = 3
    """Rounds of scenarios without a floor."""
    openings: int = 9
    opened_batches: int = 20
    replayed: int = 128 * _MIB
    """Bytes in journals to replay: about as many as two memtables of the default size hold."""
    replayed_for_memory: int = 1024 * _MIB
    filled: int = 2000
    """Number of entries in each of the hundred ledgers that are read."""
    read: int = 50_000
    """Number of entries that are read one by one in a round."""
    newest: int = 100_000
    """Number of reads of a newest entry in a round."""
    crashed: int = 200_000_000
    """Bytes in the journal of each contender when it is killed, to be opened again."""
    indexed: int = 1_000_000
    """Number of entries in the index whose size is measured."""
    indexed_run: int = 50
    """Number of entries of one ledger in each of its checkpoints."""
    kept: int = 200_000
    """Number of entries whose memory is measured."""
    grown: tuple[int, ...] = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
    """Numbers of entries at which the growing store is measured."""
    grown_window: int = 500_000
    """Number of entries added for a measurement, enough to fill the default memtables and journals once."""
    grown_reads: int = 20_000


FULL = RunSize()

QUICK = RunSize(
    name="quick",
    rounds=3,
    turn_s=0.1,
    turn_size=32 * _MIB,
    raw_size=128 * _MIB,
    sustained_size=100 * _MIB,
    sustained_s=2.0,
    sustained_rounds=3,
    concurrency=(1, 8, 64),
    rounds_without_floor=1,
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

TINY = RunSize(
    name="tiny",
    rounds=1,
    warm_up=0,
    turn_s=0.01,
    turn_size=1 * _MIB,
    raw_size=8 * _MIB,
    sustained_size=1 * _MIB,
    sustained_rounds=1,
    concurrency=(1, 8, 64),
    rounds_without_floor=1,
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
"""Shows only that the scenarios work. The figures mean nothing."""
