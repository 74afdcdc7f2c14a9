"""Reads from a directory the facts by which the table of `recovery.directory.authority` decides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from recovery.directory.authority import (
    Authority,
    AuthorityRule,
    DataFiles,
    Facts,
    ForeignFile,
    IndexFile,
    MarkFile,
    MetadataFile,
    decide,
)
from recovery.directory.durable_metadata import durable_sequence
from recovery.directory.orphans import has_foreign_logs, newest_foreign_journal
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark import NoMark, mark_of, newest_named
from storage.checkpoint.mark_format import EmptyMark, Mark
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.entry.ledger_record_table import LedgerRecordTable
from storage.entry.read_result import Damaged, Flaw, Torn
from storage.errors import CorruptionError, NewerFormat
from storage.index.port import NoIndex
from storage.ledgers import metadata_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import ExitStack

    from recovery.directory.layout import Layout
    from storage.checkpoint.mark import LoadedMark
    from storage.disk.files import Directory
    from storage.entry.ledger_record import LedgerRecord
    from storage.index.port import Index
    from storage.index.state import IndexState
    from storage.ledgers.metadata_log import LoadedMetadataLog, MetadataLogScan

    OpenIndex = Callable[[], Index | NoIndex | Damaged]

_DATA = frozenset({FileKind.JOURNAL, FileKind.ENTRY_LOG, FileKind.LEDGER_ROWS, FileKind.COMPACTED_LOG})


@dataclass(frozen=True, slots=True)
class Evidence:
    """The files that decide about a directory, as they were read, and the rule of the table for them."""

    rule: AuthorityRule
    found: LoadedMark
    index: Index | None = None
    """Open, if it counts: if lastMark and index agree, or the index speaks."""
    state: IndexState | None = None
    """The state of that index."""
    index_damage: Damaged | None = None
    metadata: MetadataLogScan | None = None
    """The content of `ledgers.rows`; `None` if there is no such file, or it was not needed."""
    indexed: LedgerRecordTable = field(default_factory=LedgerRecordTable)
    """The records in the index, if it counts."""

    @property
    def authority(self) -> Authority:
        return self.rule.authority

    @property
    def mark(self) -> Mark:
        """The mark from which a store of ours continues: the one that was found, or what the index says."""
        if self.state is not None:
            return later_mark(self.found, self.state)
        assert isinstance(self.found, Mark), "only the index can speak for another"
        return self.found

    def judged_metadata(self, layout: Layout) -> LoadedMetadataLog:
        """Return the part of `ledgers.rows` that counts. Raise if a durable group is damaged or gone."""
        known = durable_group(layout, self.found, self.state)
        return metadata_log.check(self.metadata, known)

    def refusal(self, layout: Layout, hint: str = "") -> CorruptionError | NewerFormat:
        """Return the error for a directory that cannot be opened, with the reason of the rule."""
        if mark_file(self.found) is MarkFile.NEWER:
            return NewerFormat(layout.root.path, f"{filenames.LAST_MARK}: {self.found}")
        if self.authority is Authority.NEWER_VERSION:
            return NewerFormat(layout.ledgers.path, f"{filenames.INDEX}: {self.index_damage}")
        what, offset = "missing", 0
        if isinstance(self.found, Torn | Damaged):
            what, offset = self.found.flaw.value, self.found.offset
        return CorruptionError(filenames.LAST_MARK, offset, f"{what}; {self.rule.why}{hint}", "MRK-001")


def examine(layout: Layout, open_index: OpenIndex, held: ExitStack) -> Evidence:
    """Read what decides about a directory with both of its cookies. An index that counts is closed by `held`.

    The order is that of a store which another process may be writing to: the mark first, the index last.
    """
    found = lastmark.load(layout.ledgers)
    journals, ledgers = layout.journal.names(), layout.ledgers.names()
    facts = _facts_by_names(found, journals, ledgers)
    if isinstance(found, Mark) and found.trailer is not None:
        facts = replace(facts, foreign=_foreign_journal(layout, newest_named(found)))
    rule = decide(facts)
    if rule.authority in (Authority.NEWER_VERSION, Authority.FOREIGN, Authority.BOOKIE, Authority.NEW_STORE):
        return Evidence(rule, found)
    # Not part of reading the index, because an error of this file must not pass for damage of the index.
    metadata = metadata_log.scan_directory(layout.ledgers)
    read = read_index(found, open_index, LedgerRecordTable() if metadata is None else metadata.rows)
    if read.index is None:
        return Evidence(decide(replace(facts, index=read.fact)), found, None, None, read.damage, metadata)
    state = read.index.state()
    # Newer journals than a mark of ours names have been looked for already.
    foreign = (
        _foreign_after(layout, state) if facts.mark is not MarkFile.OURS else _foreign_log(layout, state)
    )
    rule = decide(replace(facts, index=read.fact, foreign=foreign))
    if rule.authority not in (Authority.AGREED, Authority.INDEX):
        read.index.close()
        return Evidence(rule, found, metadata=metadata)
    held.callback(read.index.close)
    return Evidence(rule, found, read.index, state, None, metadata, read.rows)


def examine_names(layout: Layout) -> AuthorityRule:
    """Decide by lastMark and the names of the files alone, for a directory that may be anything.

    Enough to tell a bookie's directory from a new one, and nothing is opened for writing or locked.
    """
    found = lastmark.load(layout.ledgers)
    return decide(_facts_by_names(found, _names(layout.journal), _names(layout.ledgers)))


def _facts_by_names(found: LoadedMark, journals: Iterable[str], ledgers: Iterable[str]) -> Facts:
    names = {*journals, *ledgers}
    return Facts(
        mark_file(found),
        IndexFile.UNREAD if filenames.INDEX in names else IndexFile.MISSING,
        MetadataFile.PRESENT if filenames.LEDGER_ROWS in names else MetadataFile.MISSING,
        ForeignFile.NONE,
        DataFiles.SOME if any(filenames.parse(name).kind in _DATA for name in names) else DataFiles.NONE,
    )


def _names(directory: Directory) -> list[str]:
    try:
        return directory.names()
    except FileNotFoundError:
        return []


def facts_of(layout: Layout, found: LoadedMark, state: IndexState | None) -> Facts:
    """Return the facts with an index in this state; `None` if there is none that can be read."""
    facts = _facts_by_names(found, layout.journal.names(), layout.ledgers.names())
    if isinstance(found, Mark) and found.trailer is not None:
        facts = replace(facts, foreign=_foreign_journal(layout, newest_named(found)))
    if state is None:
        is_there = facts.index is not IndexFile.MISSING
        return replace(facts, index=IndexFile.DAMAGED if is_there else IndexFile.MISSING)
    if facts.mark is not MarkFile.OURS:
        facts = replace(facts, foreign=_foreign_after(layout, state))
    elif facts.foreign is ForeignFile.NONE:
        facts = replace(facts, foreign=_foreign_log(layout, state))
    return replace(facts, index=compare(found, state))


def durable_group(layout: Layout, found: LoadedMark, state: IndexState | None) -> int:
    """Return the last group of `ledgers.rows` that mark, index and journals name as durable.

    Beside another process that may be deleting ledgers, ask this before `ledgers.rows` is read: then every
    group that is named is in the file.
    """
    trailer = found.trailer if isinstance(found, Mark) else None
    known = max(0 if trailer is None else trailer.rows_sequence, 0 if state is None else state.rows_sequence)
    if trailer is None and state is None:
        return known
    mark = later_mark(found, state) if state is not None else found
    assert isinstance(mark, Mark), "a mark with a trailer, or one that is made of the index"
    return durable_sequence(layout.journal, mark.position, known)


# ── the facts one by one ─────────────────────────────────────────────────────────────────────────────────


def mark_file(found: LoadedMark) -> MarkFile:
    """Return what lastMark is."""
    match found:
        case Mark(trailer=trailer):
            return MarkFile.BOOKIE if trailer is None else MarkFile.OURS
        case EmptyMark():
            return MarkFile.EMPTY
        case Torn():
            return MarkFile.TORN
        case Damaged(flaw=flaw):
            return MarkFile.NEWER if flaw is Flaw.FUTURE_VERSION else MarkFile.DAMAGED
        case NoMark():
            return MarkFile.MISSING


def compare(found: LoadedMark, state: IndexState) -> IndexFile:
    """Compare an index in this state with the mark.

    An index is committed before the mark of the same checkpoint is stored, so that it can be ahead of the
    mark, and can be behind it only if it is a copy of an earlier time.
    """
    if not isinstance(found, Mark) or found.trailer is None:
        return IndexFile.AHEAD if state.generation else IndexFile.UNUSED
    if found.trailer.generation < state.generation:
        return IndexFile.AHEAD
    is_same = found == mark_of(state, newest_named(found))
    return IndexFile.EQUAL if is_same else IndexFile.OTHER_HISTORY


def later_mark(found: LoadedMark, state: IndexState) -> Mark:
    """Return the mark of this state of the index: the one that was found, unless the index is ahead of it."""
    named = newest_named(found) if isinstance(found, Mark) else 0
    return mark_of(state, max(named, state.mark.journal_id))


@dataclass(frozen=True, slots=True)
class ReadIndex:
    """An index as it was found; open, if it can be read and is of the history of the mark."""

    fact: IndexFile
    index: Index | None = None
    rows: LedgerRecordTable = field(default_factory=LedgerRecordTable)
    damage: Damaged | None = None


def read_index(found: LoadedMark, open_index: OpenIndex, like: Mapping[int, LedgerRecord]) -> ReadIndex:
    """Open the index, compare it with the mark, and read its ledger records; `like` are the expected ones."""
    index = open_index()
    if isinstance(index, NoIndex):
        return ReadIndex(IndexFile.MISSING)
    if isinstance(index, Damaged):
        is_newer = index.flaw is Flaw.FUTURE_VERSION
        return ReadIndex(IndexFile.NEWER if is_newer else IndexFile.DAMAGED, damage=index)
    try:
        fact = compare(found, index.state())
        if fact is not IndexFile.OTHER_HISTORY:
            return ReadIndex(fact, index, LedgerRecordTable(index.all_rows(like)))
    except OSError as error:
        index.close()
        return ReadIndex(IndexFile.DAMAGED, damage=Damaged(0, Flaw.CHECKSUM, f"{error}"))
    index.close()
    return ReadIndex(fact)


def _foreign_after(layout: Layout, state: IndexState) -> ForeignFile:
    """Return what a bookie has written after the last commit of an index in this state."""
    journal = _foreign_journal(layout, state.mark.journal_id)
    return _foreign_log(layout, state) if journal is ForeignFile.NONE else journal


def _foreign_log(layout: Layout, state: IndexState) -> ForeignFile:
    return ForeignFile.LOG if has_foreign_logs(layout.ledgers, state) else ForeignFile.NONE


def _foreign_journal(layout: Layout, known: int) -> ForeignFile:
    is_newer = newest_foreign_journal(layout.journal, known) > known
    return ForeignFile.JOURNAL if is_newer else ForeignFile.NONE


# ── ledger records ───────────────────────────────────────────────────────────────────────────────────────


def newest_rows(filed: Mapping[int, LedgerRecord], indexed: Mapping[int, LedgerRecord]) -> LedgerRecordTable:
    """Return the newest record of each ledger, of the file and of the index together.

    The index may have one that counts and that the file does not have: a tombstone of an earlier version of
    this program, whose group was the last of the file, and has rotted.
    """
    newest = LedgerRecordTable(filed)
    newest.merge_newer(indexed if isinstance(indexed, LedgerRecordTable) else LedgerRecordTable(indexed))
    return newest


def is_deleted_since(row: LedgerRecord, known: Mapping[int, LedgerRecord]) -> bool:
    """Return whether the record has the tombstone of a delete that the known records do not have."""
    before = known.get(row.ledger_id)
    return row.tombstone is not None and (
        before is None or before.tombstone is None or before.tombstone.journal != row.tombstone.journal
    )
