"""The settings of a store, and the reasons to change them."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass

from storage import bookkeeper_conf
from storage.bookkeeper_conf import ENTRY_OVERHEAD_MAX
from storage.daily_window import DailyWindow
from storage.entry.model import RECORD_SIZE_MAX
from storage.entry.position import LENGTH_WORD_SIZE
from storage.errors import InvalidConfig

JOURNAL_ALIGNMENTS = (512, 4096)

_MIB = 1 << 20
_GIB = 1 << 30
_FILE_SIZE_MAX = (1 << 63) - 1
_LOG_SIZE_MAX = (1 << 31) - 1
_DAY_S = 24.0 * 3600
_YEAR_S = 365 * _DAY_S

# The record with the key of a ledger, logged before its first entry in each journal.
_KEY_RECORD_SIZE = 44
# In units of the alignment: one for the header, up to two for the seal of a group, one for rounding up.
_JOURNAL_UNITS = 4

# The smallest and the largest value of each.
_SIZES = {
    "memtable_size_max": (1, _FILE_SIZE_MAX),
    "entry_size_max": (64, RECORD_SIZE_MAX),
    "group_size_max": (1, _FILE_SIZE_MAX),
    "journal_size": (1, _FILE_SIZE_MAX),
    "journal_max_backups": (0, _FILE_SIZE_MAX),
    "entry_log_size_max": (8192, _LOG_SIZE_MAX),
    "index_size_max": (1, _FILE_SIZE_MAX),
    "index_cache_size_max": (1, _FILE_SIZE_MAX),
    # At a smaller rate, the move of a few megabytes takes minutes.
    "compaction_rate": (64 << 10, _FILE_SIZE_MAX),
}
# The smallest value of each. The largest is a year, because the system's clocks fail with longer times.
_SECONDS = {"group_wait_s": 0.0, "throttle_timeout_s": 0.0, "compaction_interval_s": 0.0}
_INTERVALS = {"checkpoint_interval_s": 0.001, "idle_seal_s": 0.001, "collection_interval_s": 0.001}
_SHARES = ("compaction_minor", "compaction_major")
_MAY_BE_NONE = frozenset({*_INTERVALS, "compaction_rate", "compaction_window"})


class ReadMode(enum.Enum):
    """How entries are read from entry logs."""

    PREAD = "pread"
    MMAP = "mmap"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The settings of a store. `InvalidConfig` names a setting that cannot work.

    No setting changes the meaning of an acknowledgement. Sizes are in bytes.
    """

    memtable_size_max: int = 64 * _MIB
    """The size of each of the two tables of entries that are in no entry log yet. A larger table makes
    fewer, longer checkpoints and better sorted logs, but takes twice its size in memory and a longer replay
    after a crash."""

    entry_size_max: int = 5 * _MIB - ENTRY_OVERHEAD_MAX
    """The size of the largest entry, head and digest included, as a bookie counts it. A large add delays the
    other adds in its group."""

    group_size_max: int = 4 * _MIB
    """The bytes of records that share one write and one sync. A larger group gives more throughput with many
    writers, but each of them waits longer. A larger entry is a group of its own."""

    group_wait_s: float = 0.002
    """How long a `submit` may wait for other adds to share its sync. A longer wait means fewer syncs for
    pipelined adds. An `append` never waits; it shares its sync with the adds that wait already."""

    journal_size: int = 64 * _MIB
    """The size of one journal file. It is filled with zeros before it gets its name, so that a sync moves
    data only and a full disk is not met in the middle of a group. Larger journals are replaced less often and
    take more space."""

    journal_alignment: int = 4096
    """Groups begin at multiples of this size in a journal: 4096, or 512 so that many small groups take less
    space. With 512, two groups may share a 4 KiB sector. A power cut that tears such a sector can destroy a
    group that was proven durable, and then the store cannot be opened."""

    journal_max_backups: int = 5
    """How many journals before the mark are kept. No opening needs them, but they are a second copy of
    recent entries for a salvage."""

    entry_log_size_max: int = 1 * _GIB
    """The size at which an entry log ends and the next begins. The space of a log comes back when all of its
    entries are dead, or were moved to another log. Smaller logs come back sooner, and moving their live
    entries takes less at a time. Below 2 GiB, because offsets stay below 2^31. A larger entry has a log of
    its own."""

    index_size_max: int = 64 * _GIB
    """Address space for the index; only the used part takes space on the disk. The map grows by itself when
    it is full, but adds pause meanwhile, so make it large from the start."""

    index_cache_size_max: int = 64 * _MIB
    """Memory for the locations of entries in ledgers that are being read, 8 bytes for each entry. A cached
    location needs no look-up in the index."""

    read_mode: ReadMode = ReadMode.PREAD
    """How entry logs are read: `PREAD` with a system call for each read, `MMAP` from a memory map. `MMAP`
    takes a third less time for data in the page cache, but all threads wait while other data comes from the
    disk. With `MMAP`, a sector that cannot be read, or a log that another program truncates, kills the
    process (SIGBUS)."""

    throttle_timeout_s: float = 10.0
    """How long an add waits for a checkpoint to make room if both tables are full, before it raises
    `Overloaded`. With 0 it never waits."""

    checkpoint_interval_s: float | None = 60.0
    """The longest time until an entry is in an entry log. A shorter interval leaves less to replay after a
    crash, but makes more small writes. With `None`, only a full table, a close or a call makes one."""

    idle_seal_s: float | None = 1.0
    """A store that is idle for this time proves its last group durable, so that damage to that group is not
    taken for a write that was cut short. With `None`, it does so only at close."""

    collection_interval_s: float | None = 900.0
    """How long after a delete the store looks for entry logs whose space can come back. With `None`, it does
    so only when `Store.collect` is called."""

    compaction_minor: float = 0.2
    """An entry log with a smaller share of live bytes is compacted by every collection: its live entries
    are moved, and the log is removed. With 0, only logs without a live entry are removed."""

    compaction_major: float = 0.7
    """An entry log with a smaller share of live bytes is compacted once in `compaction_interval_s`, and by
    `Store.collect`. A larger share keeps the logs smaller, and moves more bytes for each byte that comes
    back. With 0, there is no such compaction; otherwise it is not smaller than `compaction_minor`."""

    compaction_interval_s: float = _DAY_S
    """The time between two compactions of the logs below `compaction_major`."""

    compaction_rate: int | None = 32 * _MIB
    """How many bytes a second a compaction reads, so that it takes little of the disk from adds and reads.
    With `None`, there is no limit."""

    compaction_window: str | None = None
    """The time of day in which compactions run by themselves, such as "01:00-05:00", by the clock of the
    machine. It may include midnight. Logs without a live entry are removed at any time, and
    `Store.collect` does not wait. With `None`, compactions run at any time."""

    space_reserve: int | None = None
    """Zeros that are kept in the ledger directory, and removed when the disk is full, so that deletes,
    fences, checkpoints and openings find space. Adds are refused from then on, until there is room for it
    again. With `None` it is 20 MiB and 3 % of the index, at most a sixteenth of the file system; 0 keeps
    none."""

    space_min_free: int | None = None
    """Adds raise `DiskFull` while less is free on the disk, and are accepted again when twice as much is.
    With `None` it is the size of two tables and a journal, at most a tenth of the file system."""

    space_usage_max: float | None = None
    """Adds raise `DiskFull` while a larger share of the file system is in use: 0.95 refuses them above 95 %.
    With `None` only `space_min_free` counts."""

    space_usage_resume: float | None = None
    """The share in use below which adds that `space_usage_max` has refused are accepted again. With `None`,
    twice as much must be free, but no more than a twentieth of the file system above the limit."""

    space_usage_warn: float | None = None
    """The share in use above which the store frees at once what it can: it keeps no journal backups."""

    def __post_init__(self) -> None:
        for name, (least, most) in _SIZES.items():
            if self._is_given(name):
                _check_size(name, getattr(self, name), least, most)
        for name, shortest in (_SECONDS | _INTERVALS).items():
            if self._is_given(name):
                _check_seconds(name, getattr(self, name), shortest)
        if self.journal_alignment not in JOURNAL_ALIGNMENTS:
            raise InvalidConfig("journal_alignment", f"{self.journal_alignment!r} is neither 512 nor 4096")
        if not isinstance(self.read_mode, ReadMode):
            raise InvalidConfig("read_mode", f"{self.read_mode!r} is no ReadMode")
        self._check_that_a_journal_holds_a_group()
        self._check_compaction()
        self._check_space()

    def _is_given(self, name: str) -> bool:
        return name not in _MAY_BE_NONE or getattr(self, name) is not None

    def _check_compaction(self) -> None:
        for name in _SHARES:
            _check_share(name, getattr(self, name))
        if 0 < self.compaction_major < self.compaction_minor:
            raise InvalidConfig(
                "compaction_major",
                f"{self.compaction_major} is below compaction_minor, {self.compaction_minor}",
            )
        if self.compaction_window is not None:
            _check_window("compaction_window", self.compaction_window)

    def _check_space(self) -> None:
        for name in ("space_reserve", "space_min_free"):
            if getattr(self, name) is not None:
                _check_size(name, getattr(self, name), 0, _FILE_SIZE_MAX)
        for name in ("space_usage_max", "space_usage_resume", "space_usage_warn"):
            value = getattr(self, name)
            # A comparison that refuses NaN too.
            if value is not None and not (isinstance(value, int | float) and 0 < value <= 1):
                raise InvalidConfig(name, f"{value!r} is not a share above 0 and up to 1")
        resume, most = self.space_usage_resume, self.space_usage_max or 1
        if resume is not None and resume > most:
            raise InvalidConfig("space_usage_resume", f"{resume} is above {most}, where adds are refused")

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
        """Read a bookie's configuration file, with its keys and units. Keys that it lacks keep our defaults.

        One warning names the keys without effect, and those that look misspelt. A program that wants them as
        values calls `storage.bookkeeper_conf.load`.
        """
        conf = bookkeeper_conf.load(path)
        config = cls.of_bookkeeper_conf(path, conf)
        if remarks := conf.remarks():
            import logging  # imported here, because it loads threading

            logging.getLogger("ledgerstore.config").warning("%s: %s", os.fspath(path), "; ".join(remarks))
        return config

    @classmethod
    def of_bookkeeper_conf(
        cls, path: str | os.PathLike[str], conf: bookkeeper_conf.BookkeeperConf
    ) -> StoreConfig:
        """Return the settings in a bookie's configuration file that has been read from this path."""
        try:
            return cls(**conf.settings)  # type: ignore[arg-type]
        except InvalidConfig as error:
            origin = conf.origins.get(error.name)
            name, reason = (error.name, error.reason) if origin is None else (origin, str(error))
            raise InvalidConfig(f"{os.fspath(path)}, {name}", reason) from error


def _check_size(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int):
        raise InvalidConfig(name, f"{value!r} is not a whole number")
    if not least <= value <= most:
        raise InvalidConfig(name, f"{value} is not between {least} and {most}")


def _check_seconds(name: str, value: object, shortest: float) -> None:
    if not isinstance(value, int | float):
        raise InvalidConfig(name, f"{value!r} is not a number of seconds")
    # A comparison that refuses NaN too.
    if not shortest <= value <= _YEAR_S:
        raise InvalidConfig(name, f"{value} is not between {shortest:g} s and a year")


def _check_share(name: str, value: object) -> None:
    if not isinstance(value, int | float):
        raise InvalidConfig(name, f"{value!r} is not a number")
    # With 1, a log with a single dead record would be copied again and again. NaN is refused too.
    if not 0 <= value < 1:
        raise InvalidConfig(name, f"{value} is not at least 0 and below 1")


def _check_window(name: str, value: object) -> None:
    if not isinstance(value, str) or DailyWindow.parse(value) is None:
        raise InvalidConfig(name, f"{value!r} is no time from HH:MM to another HH:MM, such as 01:00-05:00")
