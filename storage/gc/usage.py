"""The live bytes of each entry log: an estimate, by which a collection chooses its logs.

A sealed log has a ledgers map, the bytes of each ledger in it. A log without a proven map is walked once,
from record to record, for the same numbers. Which of these ledgers live is looked up when a collection
begins, so that adds and deletes need not count:

    no location in the index                                    all its records are dead
    a tombstone, and the log was complete before its bound      these records are of the deleted ledger
    truncated                                                   the index counts its entries in each log
    any other ledger                                            all its records are taken for live

The last line is wrong where an entry was added again. The log then seems fuller than it is until other
entries in it are deleted. A wrong estimate costs work or time, and never an entry, because a log is removed
only after every record in it was accounted for.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from storage.disk import filenames
from storage.entry.digest_inference import EntryVerifier
from storage.entry.position import LENGTH_WORD_SIZE, LOG_ID_MAX
from storage.entry.read_result import Damaged
from storage.entrylog import format as entrylog_format
from storage.entrylog.open_logs import OFFSET
from storage.entrylog.reader import EntryLogReader
from storage.gc.log_walk import walk
from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from storage.disk.files import Directory, ReadFile
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.position import LogPosition
    from storage.index.port import IndexReader
    from storage.runtime.worker import Pause

CACHED_PAIRS_MAX = 1 << 18
"""How many pairs of ledger and bytes are kept in memory, of all logs together, at 16 bytes each."""

_LEDGERS_MAX = 1 << 16
"""The ledgers whose facts are kept, at about 150 bytes each."""

_LEDGERS_AT_ONCE = 32  # about 0.2 ms of look-ups
_LOCATIONS_AT_ONCE = 255  # above, the index may fetch all locations of a ledger


class LedgerRecords(Protocol):
    """The metadata of ledgers."""

    def of(self, ledger_id: int) -> LedgerRecord:
        """Return the metadata of a ledger; for an unknown one, that of a new one."""


@dataclass(frozen=True, slots=True)
class LogUsage:
    """The live bytes of one log."""

    log_id: int
    size: int
    """The size of the file."""
    recorded: int
    """The bytes of all records of entries."""
    live: int
    ledgers: int
    """How many ledgers have records in the log."""
    live_ledgers: int
    """How many of them have live records in it."""
    deleted_ledgers: int
    """How many are deleted and still in the index, until the next checkpoint."""
    damage: Damaged | None = None
    """Where the records end too early. Then the numbers are those before this place."""


@dataclass(frozen=True, slots=True)
class _BytesByLedger:
    """The bytes of each ledger in one log."""

    ledger_ids: array[int]
    sizes: array[int]
    damage: Damaged | None

    @classmethod
    def of(cls, sizes: Mapping[int, int], damage: Damaged | None) -> _BytesByLedger:
        return cls(array("q", sizes), array("q", sizes.values()), damage)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LedgerFacts:
    """Facts that decide which records of one ledger are live."""

    exists: bool
    is_deleted: bool = False
    """Whether the ledger was deleted, and a checkpoint has not removed its locations yet."""
    bound: LogPosition | None = None
    """The records before it belong to a deleted ledger of the same id."""
    first_entry_id: int = 0
    """The first entry that was not truncated."""


@dataclass(slots=True)
class _EntriesInLog:
    """The entries of a truncated ledger in one log."""

    first: int
    """The packed location of the first of them."""
    entries: int = 1


class ContentCache:
    """The contents of logs, up to so many pairs in all. For one thread.

    A log that is sealed, or no longer written, never changes, so its content stays right until it is removed.
    """

    def __init__(self, pairs_max: int = CACHED_PAIRS_MAX) -> None:
        self._pairs_max = pairs_max
        self._pairs = 0
        self._contents: OrderedDict[tuple[int, int], _BytesByLedger] = OrderedDict()

    def get(self, log_id: int, end: int) -> _BytesByLedger | None:
        return self._contents.get((log_id, end))

    def put(self, log_id: int, end: int, content: _BytesByLedger) -> None:
        if (log_id, end) in self._contents:
            return
        self._contents[log_id, end] = content
        self._pairs += len(content.sizes)
        while self._pairs > self._pairs_max:
            _, oldest = self._contents.popitem(last=False)
            self._pairs -= len(oldest.sizes)


def _ignore(ledger_id: int, recorded: int, live: int) -> None:
    """Do nothing with the bytes of a ledger."""


@dataclass(slots=True)
class UsageSurvey:
    """Finds the usage of the logs of one committed state, in steps. For one thread."""

    directory: Directory
    index: IndexReader
    """The index as it is committed."""
    visible: IndexReader
    """The index without the locations of ledgers that were deleted."""
    records: LedgerRecords
    log_ends: Mapping[int, int]
    """The durable end of each committed log."""
    last_log: int | None
    cache: ContentCache = field(default_factory=ContentCache)
    watch: Callable[[int, int, int], None] = _ignore
    """Called for each ledger in each log with its id, its bytes there, and how many of them are live."""
    _facts: dict[int, _LedgerFacts] = field(default_factory=dict)
    _truncated: dict[int, dict[int, _EntriesInLog]] = field(default_factory=dict)

    def usage_of(self, log_id: int) -> Generator[Pause, None, LogUsage]:
        """Return the usage of a log. Each step takes a fraction of a millisecond."""
        end = self.log_ends[log_id]
        with self.directory.open(filenames.entry_log(log_id)) as file:
            reader = EntryLogReader(file, log_id, EntryVerifier())
            content = self.cache.get(log_id, end) or _mapped(reader)
            if content is None:
                content = yield from _walked(file, log_id, end)
            self.cache.put(log_id, end, content)
            return (yield from self._usage(reader, content))

    def known_usage_of(self, log_id: int) -> LogUsage | None:
        """Return the usage of a log at once; `None` if it is not committed, or would have to be walked."""
        end = self.log_ends.get(log_id)
        if end is None:
            return None
        with self.directory.open(filenames.entry_log(log_id)) as file:
            reader = EntryLogReader(file, log_id, EntryVerifier())
            content = self.cache.get(log_id, end) or _mapped(reader)
            return None if content is None else take_all_steps(self._usage(reader, content))

    def size_of(self, log_id: int) -> int:
        """Return the size of a log's file."""
        with self.directory.open(filenames.entry_log(log_id)) as file:
            return file.size()

    def _usage(self, reader: EntryLogReader, content: _BytesByLedger) -> Generator[Pause, None, LogUsage]:
        live = live_ledgers = deleted = 0
        for number, (ledger_id, size) in enumerate(zip(content.ledger_ids, content.sizes, strict=True)):
            facts = self._facts.get(ledger_id)
            if facts is None:
                facts = self._look_up(ledger_id)
            here = 0
            if facts.exists and not (facts.bound is not None and self.is_before(reader.log_id, facts.bound)):
                here = size
                if facts.first_entry_id:
                    here = yield from self._live_of_truncated(reader, ledger_id, facts.first_entry_id, size)
            live, live_ledgers = live + here, live_ledgers + (here > 0)
            deleted += facts.is_deleted
            self.watch(ledger_id, size, here)
            if number % _LEDGERS_AT_ONCE == 0:
                yield AT_ONCE
        recorded, ledgers = sum(content.sizes), len(content.sizes)
        return LogUsage(
            reader.log_id, reader.size, recorded, live, ledgers, live_ledgers, deleted, content.damage
        )

    def _look_up(self, ledger_id: int) -> _LedgerFacts:
        """Look up the facts about a ledger, once for all logs."""
        if len(self._facts) >= _LEDGERS_MAX:
            self._facts.clear()
        exists = self.visible.last(ledger_id) is not None
        if exists:
            record = self.records.of(ledger_id)
            bound = None if record.tombstone is None else record.tombstone.log
            facts = _LedgerFacts(exists=True, bound=bound, first_entry_id=record.first_entry_id)
        else:
            facts = _LedgerFacts(exists=False, is_deleted=self.index.last(ledger_id) is not None)
        self._facts[ledger_id] = facts
        return facts

    def _live_of_truncated(
        self, reader: EntryLogReader, ledger_id: int, first_entry_id: int, size: int
    ) -> Generator[Pause, None, int]:
        placed = yield from self._places(ledger_id, first_entry_id)
        here = placed.get(reader.log_id)
        # The first of the entries stands for the size of all of them.
        return 0 if here is None else min(size, here.entries * _record_size(reader, here.first))

    def is_before(self, log_id: int, bound: LogPosition) -> bool:
        """Return whether all records of the log are before the bound of a tombstone."""
        if bound.offset == 0:
            return False  # there was no log at the delete
        age, age_of_bound = self._age(log_id), self._age(bound.log_id)
        return age < age_of_bound or (age == age_of_bound and self.log_ends[log_id] <= bound.offset)

    def _age(self, log_id: int) -> int:
        """Return the place of a log in the order in which ids were given out, which wraps around."""
        last = LOG_ID_MAX if self.last_log is None else self.last_log
        return (log_id - last - 1) % LOG_ID_MAX

    def _places(self, ledger_id: int, first: int) -> Generator[Pause, None, dict[int, _EntriesInLog]]:
        """Return where the entries of a truncated ledger are, by log."""
        if ledger_id not in self._truncated:
            placed: dict[int, _EntriesInLog] = {}
            while some := self.visible.locations(ledger_id, first, _LOCATIONS_AT_ONCE):
                for _, location in some:
                    here = placed.get(location >> 32)
                    if here is None:
                        placed[location >> 32] = _EntriesInLog(location)
                    else:
                        here.entries += 1
                first = some[-1][0] + 1
                yield AT_ONCE
            self._truncated[ledger_id] = placed
        return self._truncated[ledger_id]


def _mapped(reader: EntryLogReader) -> _BytesByLedger | None:
    """Return the content of a log from its ledgers map; `None` if no checksum proves that."""
    sizes = reader.proven_map()
    if isinstance(sizes, dict):
        return _BytesByLedger.of(sizes, None)
    return _BytesByLedger.of({}, reader.header) if isinstance(reader.header, Damaged) else None


def _walked(file: ReadFile, log_id: int, end: int) -> Generator[Pause, None, _BytesByLedger]:
    """Return the content of a log from a walk along its records, which may end too early."""
    counted: Counter[int] = Counter()
    damage = None
    for item in walk(file, log_id, end):
        if isinstance(item, Damaged):
            damage = item
            continue
        for run in item.runs:
            counted[run.ledger_id] += sum(run.sizes)
        yield AT_ONCE
    return _BytesByLedger.of(counted, damage)


def _record_size(reader: EntryLogReader, location: int) -> int:
    """Return the size of the record at a location; 0 if there is none, which a later proof will notice."""
    frame = reader.frame_at((location & OFFSET) - LENGTH_WORD_SIZE)
    return frame.end - frame.offset if isinstance(frame, entrylog_format.LogFrame) else 0


def take_all_steps(steps: Generator[Pause, None, LogUsage]) -> LogUsage:
    """Take all steps at once, for a caller during which no add waits."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            usage: LogUsage = done.value
            return usage
