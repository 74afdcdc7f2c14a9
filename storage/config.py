"""What can be set about a store, and what each setting buys."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass

from storage.entry import RECORD_SIZE_MAX
from storage.errors import InvalidConfig
from storage.position import LENGTH_WORD_SIZE

ENTRY_OVERHEAD_MAX = 500
"""A bookie's largest entry is its largest network frame less so many bytes."""

JOURNAL_ALIGNMENTS = (512, 4096)

_MIB = 1 << 20
_GIB = 1 << 30
_FILE_SIZE_MAX = (1 << 63) - 1
_LOG_SIZE_MAX = (1 << 31) - 1
_YEAR_S = 365.0 * 24 * 3600

# The record with the key of a ledger, logged before its first entry in each journal.
_KEY_RECORD_SIZE = 44
# Of the alignment: the header takes one, a group's seal up to two, and one is for rounding up.
_JOURNAL_UNITS = 4

# The least and the most that each takes.
_SIZES = {
    "memtable_size_max": (1, _FILE_SIZE_MAX),
    "entry_size_max": (64, RECORD_SIZE_MAX),
    "group_size_max": (1, _FILE_SIZE_MAX),
    "journal_size": (1, _FILE_SIZE_MAX),
    "journal_max_backups": (0, _FILE_SIZE_MAX),
    "entry_log_size_max": (8192, _LOG_SIZE_MAX),
    "index_size_max": (1, _FILE_SIZE_MAX),
    "index_cache_size_max": (1, _FILE_SIZE_MAX),
}
# The least of each. Longer than a year, and the system's own clocks give up; "never" is None.
_SECONDS = {"group_wait_s": 0.0, "throttle_timeout_s": 0.0}
_INTERVALS = {"checkpoint_interval_s": 0.001, "idle_seal_s": 0.001}


class ReadMode(enum.Enum):
    """How entries are read from entry logs."""

    PREAD = "pread"
    MMAP = "mmap"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The settings of a store, checked where they are made; `InvalidConfig` names what could not work.

    None of them changes what an acknowledgement means. Sizes are in bytes.
    """

    memtable_size_max: int = 64 * _MIB
    """One of the two tables that hold what no entry log holds yet. Larger: fewer, longer checkpoints with
    better sorted logs, for twice the memory and a longer replay after a crash."""

    entry_size_max: int = 5 * _MIB - ENTRY_OVERHEAD_MAX
    """The largest entry, head and digest included, as a bookie counts it. A limit for what one add may cost
    everybody else in its group."""

    group_size_max: int = 4 * _MIB
    """The bytes of records that share one write and one sync. Larger: more throughput under many writers, at
    the price of a longer wait for each. A larger entry is a group of its own."""

    group_wait_s: float = 0.002
    """How long a `submit` may wait for company. Longer: fewer syncs for pipelined adds. An `append` never
    waits for others, it takes along who is there."""

    journal_size: int = 64 * _MIB
    """The size of one journal file, filled with zeros before it has a name. Filling ahead makes each sync
    move data only, and keeps a full disk from striking in the middle of a group. Larger: fewer rolls, more
    space."""

    journal_alignment: int = 4096
    """Where groups begin in a journal: at multiples of 4096, or of 512 for journals of many small groups that
    take less space. With 512 two groups share the 4 KiB sector of most disks: a power cut that tears such a
    sector can destroy a group that was vouched for, and then the store is refused when it is opened."""

    journal_max_backups: int = 5
    """Journals before the mark that are kept although nothing needs them: a second source of the latest
    entries for a salvage."""

    entry_log_size_max: int = 1 * _GIB
    """Where an entry log ends and the next begins: what is freed at once when all of a log is dead. Below
    2 GiB, since offsets stay below 2^31. An entry that fits into no log has one of its own."""

    index_size_max: int = 64 * _GIB
    """Address space for the index. Only what is used takes space on the disk; a large map up front spares the
    pauses in which it grows by itself."""

    index_cache_size_max: int = 64 * _MIB
    """Memory for places of entries in ledgers that are being read: 8 bytes each, and then no look-up in the
    index."""

    read_mode: ReadMode = ReadMode.PREAD
    """How entry logs are read: by a call to the system each time, or with `MMAP` out of memory that it fills.
    That takes a third less time for what it has in its memory already. For what it has to fetch first every
    thread waits; and a sector that cannot be read, or a log that somebody cuts short, kills the process
    (SIGBUS) instead of being told."""

    throttle_timeout_s: float = 10.0
    """How long an add that finds both tables full waits for a checkpoint to make room, before it is
    `Overloaded`. With 0 it never waits."""

    checkpoint_interval_s: float | None = 60.0
    """How long at most an entry waits for its entry log. Shorter: less to replay after a crash, more small
    writes. `None`: only a full table, a close or a call makes a checkpoint."""

    idle_seal_s: float | None = 1.0
    """When a store has been idle for so long, it vouches for its last group: damage there is then told from a
    write that was cut short. `None`: only at close."""

    def __post_init__(self) -> None:
        for name, (least, most) in _SIZES.items():
            _check_size(name, getattr(self, name), least, most)
        for name, shortest in _SECONDS.items():
            _check_seconds(name, getattr(self, name), shortest)
        for name, shortest in _INTERVALS.items():
            if getattr(self, name) is not None:
                _check_seconds(name, getattr(self, name), shortest)
        if self.journal_alignment not in JOURNAL_ALIGNMENTS:
            raise InvalidConfig("journal_alignment", f"{self.journal_alignment!r} is neither 512 nor 4096")
        if not isinstance(self.read_mode, ReadMode):
            raise InvalidConfig("read_mode", f"{self.read_mode!r} is no ReadMode")
        self._check_that_a_journal_holds_a_group()

    def _check_that_a_journal_holds_a_group(self) -> None:
        records = max(self.group_size_max, LENGTH_WORD_SIZE + self.entry_size_max)
        least = records + _KEY_RECORD_SIZE + _JOURNAL_UNITS * self.journal_alignment
        if self.journal_size < least:
            raise InvalidConfig(
                "journal_size",
                f"{self.journal_size} bytes have no room for a group of {records}: it takes {least} or more",
            )

    @classmethod
    def from_bookkeeper_conf(cls, path: str | os.PathLike[str]) -> StoreConfig:
        """The settings in a bookie's configuration file, by its keys and units; what it leaves out is ours.

        One warning names the keys that are unknown, and those without effect here.
        `storage.bookkeeper_conf.load` answers with both instead.
        """
        import logging

        from storage import bookkeeper_conf

        conf = bookkeeper_conf.load(path)
        if remarks := conf.remarks():
            logging.getLogger("storage.config").warning("%s: %s", os.fspath(path), "; ".join(remarks))
        return conf.config


def _check_size(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int):
        raise InvalidConfig(name, f"{value!r} is not a whole number")
    if not least <= value <= most:
        raise InvalidConfig(name, f"{value} is not between {least} and {most}")


def _check_seconds(name: str, value: object, shortest: float) -> None:
    if not isinstance(value, int | float):
        raise InvalidConfig(name, f"{value!r} is not a number of seconds")
    # Written so that not-a-number is refused too.
    if not shortest <= value <= _YEAR_S:
        raise InvalidConfig(name, f"{value} is not between {shortest:g} s and a year")
