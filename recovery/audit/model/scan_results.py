"""Results of scans: plain values, the same for every engine."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.model.runs import no_runs
from storage.entry.read_result import Damaged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.model.runs import Runs
    from storage.entry.model import DigestType
    from storage.entry.position import JournalPosition
    from storage.entry.read_result import Flaw, Stop
    from storage.entrylog.format import EmptyLog, LogHeader
    from storage.journal.scan import JournalScan


class FlawKind(enum.Enum):
    """The kind of damage at a place in a file."""

    DIGEST = "an entry does not carry the digest of its bytes"
    HOLE = "bytes that are not a record; something sound may follow"
    DOUBT = "an entry of a ledger without other evidence: its ledger id may be damaged"
    CONFIRMED = "the last add confirmed of an entry is not before the entry"
    RECORD = "an invalid record in a journal, or a group whose checksum does not match"


@dataclass(frozen=True, slots=True)
class FlawAt:
    """Something wrong in [offset, end) of a file. Ledger and entry are set if the record still
    contains them.
    """

    kind: FlawKind
    flaw: Flaw | None
    offset: int
    end: int
    ledger_id: int | None = None
    entry_id: int | None = None
    detail: str = ""
    count: int = 1
    """How many records this stands for. The first one is at `offset`."""
    last_entry_id: int | None = None
    """The largest entry id, if this stands for several entries of one ledger; `None` for a single entry."""
    is_proven_otherwise: bool = False
    """Whether the entry carries a CRC of its bytes, though not of the type of its ledger."""


@dataclass(frozen=True, slots=True)
class MapRecord:
    """One record of an entry log's ledgers map."""

    offset: int
    end: int
    pairs: tuple[tuple[int, int], ...] | Damaged
    """Ledgers with their sizes; empty if they are in the tables of an audit."""


MAPPED = np.dtype([("record", "<i8"), ("file", "<i8"), ("ledger", "<i8"), ("size", "<i8")])
"""Rows of ledgers maps: the size of one ledger in a log. `record` is the offset of the map's record."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogPart:
    """The result for one range of an entry log: every record that begins in [entry, exit).

    A range that does not begin at the log's first record begins at the first sound record after its start.
    That is a guess, which a payload can mislead. It is proven if the range before it ends exactly there.
    """

    log_id: int
    start: int
    end: int
    """The requested range. `end` may be after the end of the file."""
    entry: int
    exit: int
    """Where the first record of the next range has to begin."""
    file_size: int
    header: LogHeader | EmptyLog | Damaged
    runs: Runs = field(default_factory=no_runs)
    """Runs of all entries with correct framing, including entries with a wrong digest."""
    records: int = 0
    size: int = 0
    """The number of bytes scanned."""
    flaws: tuple[FlawAt, ...] = ()
    maps: tuple[MapRecord, ...] = ()
    fillers: int = 0
    """The number of bytes that every scan skips: fillers and direct-I/O padding."""
    stop: Stop | None = None
    """Why the scan stopped, and where; `None` if it reached the end of the range and the data goes on."""
    types: Mapping[int, DigestType] = field(default_factory=dict)
    """The digest type of each ledger in the range whose type is not CRC-32C."""
    unverified: Mapping[int, int] = field(default_factory=dict)
    """For each ledger the number of entries that could not be verified, if there are any."""
    unreadable: tuple[tuple[int, int], ...] = ()
    """The extents that the disk could not read. They were scanned as damage."""
    seconds: float = 0.0
    number: int = 0
    """Its number in the tables of an audit, see `Scanned`."""


@dataclass(frozen=True, slots=True)
class JournalFact:
    """A journal record that is not an entry: a master key, a fence or an explicit LAC."""

    offset: int
    ledger_id: int
    master_key: bytes | None = None
    fences: bool = False
    explicit_lac: bytes | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JournalPart:
    """The result for one journal."""

    journal_id: int
    file_size: int
    scan: JournalScan
    """The scan from the mark on, or from the first record: the input of `recovery.replay.chain`."""
    before_mark: Runs = field(default_factory=no_runs)
    """Runs of the entries before the mark. Their places are offsets of length words in the journal."""
    after_mark: Runs = field(default_factory=no_runs)
    """Runs of the entries from the mark on that are sound or kept."""
    flaws: tuple[FlawAt, ...] = ()
    """Every damaged record or region, including those before the mark."""
    tail: tuple[FlawAt, ...] = ()
    """Damage after everything that proves its own integrity. A torn write leaves it too, unless it is vouched
    for.
    """
    facts: tuple[JournalFact, ...] = ()
    named: JournalPosition | None = None
    """The position up to which data was durable, according to the first group of the file."""
    marked_at_record: bool | None = None
    """For the journal that the mark names: whether a record begins, or the data ends, at the mark."""
    records: int = 0
    types: Mapping[int, DigestType] = field(default_factory=dict)
    unverified: Mapping[int, int] = field(default_factory=dict)
    unreadable: tuple[tuple[int, int], ...] = ()
    """The extents that the disk could not read. They were scanned as damage."""
    seconds: float = 0.0
    entries_before: int = 0
    """The number of entries in the runs before the mark, `entries_after` of those from the mark on."""
    entries_after: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class RowFlaw:
    """A row of the index that is invalid."""

    ledger_id: int
    entry_id: int
    location: int
    detail: str
    is_double: bool = False
    """The entry has another row too."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class IndexPart:
    """The result for some ledgers of the index."""

    runs: Runs = field(default_factory=no_runs)
    """`file` is the log id. `digests`, `size` and `bad` are 0."""
    count: int = 0
    flaws: tuple[RowFlaw, ...] = ()
    seconds: float = 0.0
    number: int = 0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BookieIndexPart:
    """The result for a bookie's own index, without the rows of deleted ledgers."""

    runs: Runs = field(default_factory=no_runs)
    """`file` is the log id. `digests`, `size` and `bad` are 0."""
    count: int = 0
    invalid: int = 0
    """Rows with a negative id, or without a place in a log."""
    trouble: str = ""
    """Why the rows cannot be read, or an empty text."""
    seconds: float = 0.0
    number: int = 0


Part = LogPart | JournalPart | IndexPart | BookieIndexPart


@dataclass(frozen=True, slots=True, eq=False)
class Scanned:
    """The result of a scan task, divided: the part without its runs, which is small, and the runs.

    The runs go to the tables of the audit. Each row there has the number of its part, so that a part which is
    read again replaces its rows. A journal has two numbers: its own for the entries from the mark on, and the
    next one for those before the mark.
    """

    part: Part
    rows: Mapping[int, Runs]
    """The runs by number; empty if they are in the tables already."""
    mapped: np.ndarray[Any, Any] = field(default_factory=partial(np.empty, 0, MAPPED))
    """The pairs of ledgers maps, as rows of `MAPPED`."""

    def whole(self) -> Part:
        """Return the part with its runs."""
        if isinstance(self.part, JournalPart):
            after, before = self.rows[self.part.number], self.rows[self.part.number + 1]
            return replace(self.part, after_mark=after, before_mark=before)
        if not isinstance(self.part, LogPart):
            return replace(self.part, runs=self.rows[self.part.number])
        maps = tuple(self._with_pairs(record) for record in self.part.maps)
        return replace(self.part, runs=self.rows[self.part.number], maps=maps)

    def _with_pairs(self, record: MapRecord) -> MapRecord:
        if isinstance(record.pairs, Damaged):
            return record
        mine = self.mapped[self.mapped["record"] == record.offset]
        return replace(record, pairs=tuple(zip(mine["ledger"].tolist(), mine["size"].tolist(), strict=True)))


def split(part: Part, number: int) -> Scanned:
    """Divide a part into what is small, and its runs."""
    if isinstance(part, JournalPart):
        light = replace(
            part,
            number=number,
            entries_before=int(part.before_mark["count"].sum()),
            entries_after=int(part.after_mark["count"].sum()),
            before_mark=no_runs(),
            after_mark=no_runs(),
        )
        return Scanned(light, {number: part.after_mark, number + 1: part.before_mark})
    rows = {number: part.runs}
    if not isinstance(part, LogPart):
        return Scanned(replace(part, number=number, runs=no_runs()), rows)
    maps = [(one, () if isinstance(one.pairs, Damaged) else one.pairs) for one in part.maps]
    mapped = [(one.offset, part.log_id, *pair) for one, pairs in maps for pair in pairs]
    without = tuple(replace(one, pairs=()) if pairs else one for one, pairs in maps)
    light_log = replace(part, number=number, runs=no_runs(), maps=without)
    return Scanned(light_log, rows, np.array(mapped, dtype=MAPPED))
