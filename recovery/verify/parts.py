"""What a task says of its part of a file: plain values, the same whichever engine ran it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.verify.runs import no_runs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.verify.runs import Runs
    from storage.codec.entrylog import EmptyLog, Header
    from storage.entry import DigestType
    from storage.journal_scan import JournalScan
    from storage.outcome import Damaged, Flaw, Stop
    from storage.position import JournalPosition


class FlawKind(enum.Enum):
    """What is wrong at a place in a file."""

    DIGEST = "an entry does not carry the digest of its bytes"
    HOLE = "bytes that are no record; something sound may follow"
    DOUBT = "an entry of a ledger that nothing speaks for: its ledger id may be damaged"
    CONFIRMED = "an entry says that itself or a later one was confirmed before it"
    RECORD = "a record in a journal that makes no sense, or a group whose checksum does not match"


@dataclass(frozen=True, slots=True)
class FlawAt:
    """Something wrong in [offset, end) of a file; ledger and entry where a record still says them."""

    kind: FlawKind
    flaw: Flaw | None
    offset: int
    end: int
    ledger_id: int | None = None
    entry_id: int | None = None
    detail: str = ""
    count: int = 1
    """How many it stands for, the first of which stands at `offset`."""
    last_entry_id: int | None = None
    """Of several entries of one ledger the largest id; `None`: it is about one."""
    is_proven_otherwise: bool = False
    """Of an entry: whether it carries a CRC of its bytes, though not as its ledger's entries do."""


@dataclass(frozen=True, slots=True)
class MapRecord:
    """One record of an entry log's ledgers map, as the walk came upon it."""

    offset: int
    end: int
    pairs: tuple[tuple[int, int], ...] | Damaged


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LogPart:
    """What was found in one range of an entry log: every record that begins in [entry, exit).

    A range that does not begin at the log's first record begins at the first sound record behind its start.
    That is a guess, which a payload can mislead; it is proven when the range before it ends just there.
    """

    log_id: int
    start: int
    end: int
    """The range that was asked for; `end` may lie behind the file's."""
    entry: int
    exit: int
    """Where the first record of the next range has to begin."""
    file_size: int
    header: Header | EmptyLog | Damaged
    runs: Runs = field(default_factory=no_runs)
    """Of all entries that are framed, bad ones too."""
    records: int = 0
    size: int = 0
    """Bytes that were walked over."""
    flaws: tuple[FlawAt, ...] = ()
    maps: tuple[MapRecord, ...] = ()
    fillers: int = 0
    """Bytes that every scan passes over: fillers, direct-I/O padding."""
    stop: Stop | None = None
    """How the walk ended, with the place; `None`: it reached the range's end, and the data goes on."""
    types: Mapping[int, DigestType] = field(default_factory=dict)
    """How the entries of each ledger seen were verified, where that is not CRC-32C."""
    unverified: Mapping[int, int] = field(default_factory=dict)
    """For each ledger with such entries how many nothing could verify."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Fact:
    """A record in a journal that is no entry: a key, a fence, an explicit LAC."""

    offset: int
    ledger_id: int
    master_key: bytes | None = None
    fences: bool = False
    explicit_lac: bytes | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JournalPart:
    """What was found in one journal."""

    journal_id: int
    file_size: int
    scan: JournalScan
    """From the mark on, or from the first record: what `recovery.chain` judges."""
    before: Runs = field(default_factory=no_runs)
    """The entries before the mark: their places are offsets of length words in the journal."""
    behind: Runs = field(default_factory=no_runs)
    """Those that stand from the mark on and are sound or kept."""
    flaws: tuple[FlawAt, ...] = ()
    """Every damaged record or stretch, before the mark too."""
    tail: tuple[FlawAt, ...] = ()
    """The same behind all that proves anything: a torn write leaves it too, unless it is vouched for."""
    facts: tuple[Fact, ...] = ()
    named: JournalPosition | None = None
    """What the first group of the file, before the mark or not, says was durable before it."""
    marked_at_record: bool | None = None
    """Of the journal that the mark names: whether a record begins, or the data ends, where it says."""
    records: int = 0
    types: Mapping[int, DigestType] = field(default_factory=dict)
    unverified: Mapping[int, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RowFlaw:
    """A row of the index that cannot be one."""

    ledger_id: int
    entry_id: int
    location: int
    detail: str
    is_double: bool = False
    """The entry has another row too."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class IndexPart:
    """What the index holds of some ledgers."""

    runs: Runs = field(default_factory=no_runs)
    """`file` is the log; `digests`, `size` and `bad` are 0."""
    count: int = 0
    flaws: tuple[RowFlaw, ...] = ()
    seconds: float = 0.0
