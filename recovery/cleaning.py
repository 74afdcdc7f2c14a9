"""Entry logs as a bookie's scans must find them: they know neither a log's durable end nor who was deleted.

Behind the durable end of a log stands what an interrupted checkpoint has left, and in front of it there are
the records of ledgers that were deleted. A scan takes both for entries. So such a log is written anew: up to
its end, with fillers in the place of dead records, and with its ledgers map. What counts keeps its place, and
the index stays as it is. A log that is as it must be is not touched.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.declared import DeclaredByRows
from recovery.torn import save_aside
from storage import entrylog_scan, filenames
from storage.codec import entrylog as codec
from storage.codec.survey import EntryVerifier
from storage.entry_logs import log_ids
from storage.entrylog_reader import EntryLogReader, LogEntry, LogMap
from storage.entrylog_scan import Hole, LogFiller
from storage.outcome import Damaged, EndOfData, Torn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.files import Directory
    from storage.index import Index
    from storage.report import TornTail
    from storage.row import LedgerRow


@dataclass(slots=True)
class CleanedLogs:
    """What was done to the entry logs of a directory."""

    written: list[str] = field(default_factory=list)
    """Those that were written anew."""
    blanked: int = 0
    """Dead records of deleted ledgers that were."""
    saved: list[TornTail] = field(default_factory=list)
    """What stood behind ends."""
    findings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Content:
    """What a log holds up to where it counts."""

    sizes: Counter[int] = field(default_factory=Counter)
    """Bytes by ledger, of the living."""
    dead: list[tuple[int, int]] = field(default_factory=list)
    """Offset and size of each dead record."""
    unsound: int | None = None
    """The first place where bytes make no sense."""

    def miss(self, offset: int) -> None:
        self.unsound = offset if self.unsound is None else self.unsound


def clean_logs(
    directory: Directory, index: Index, rows: Mapping[int, LedgerRow], quarantine: Directory
) -> CleanedLogs:
    """Makes the logs such that a scan finds what counts and nothing else.

    For whoever holds the directory's lock, with everything checkpointed. Each log is replaced in one step,
    durably after the directory's next `sync`; a power cut before that leaves what was there.
    """
    cleaning = _Cleaning(directory, index, rows, quarantine)
    for log_id, end in sorted(index.state().log_ends.items()):
        if log_id in cleaning.present:
            cleaning.take(log_id, end)
    return cleaning.done


class _Cleaning:
    """Goes through one log after the other."""

    def __init__(
        self, directory: Directory, index: Index, rows: Mapping[int, LedgerRow], quarantine: Directory
    ) -> None:
        self.done = CleanedLogs()
        self.present = {*log_ids(directory)}
        self._directory = directory
        self._index = index
        self._declared = DeclaredByRows(rows)
        self._deleted = {row.ledger_id for row in rows.values() if row.tombstone is not None}
        self._quarantine = quarantine

    def take(self, log_id: int, end: int) -> None:
        """Writes the log anew if it has to be."""
        name = filenames.entry_log(log_id)
        with self._directory.open(name) as file:
            reader = EntryLogReader(file, log_id, EntryVerifier(self._declared))
            match reader.header:
                case codec.Header(origin=codec.Origin()) if end > codec.HEADER_SIZE:
                    self._take_ours(reader, name, end)
                case codec.Header() if self._deleted:
                    self._take_others(reader, name)
                case Damaged() as damaged:
                    self._tell_unsound(name, damaged.offset)

    def _take_ours(self, reader: EntryLogReader, name: str, end: int) -> None:
        limit = end + len(codec.encode_filler(end))
        is_sealed = _is_sealed_at(reader, limit)
        if is_sealed and not self._mentions_deleted(reader):
            return
        content = self._content(reader, end, proven=end)
        if content.unsound is not None:
            self._tell_unsound(name, content.unsound)
        if is_sealed and not content.dead:
            return
        if not is_sealed:
            self._save(name, limit)
        # A map of half a log would be believed: one that is not sound gets none, and is scanned.
        sizes = content.sizes if content.unsound is None else Counter[int]()
        self._write(reader, name, content, end, _sealing(sizes, end))

    def _take_others(self, reader: EntryLogReader, name: str) -> None:
        """A bookie's log, or one that was only read since a bookie ran: all of it stays but the dead."""
        if not self._mentions_deleted(reader):
            return
        content = self._content(reader, reader.size, proven=0)
        if content.unsound is not None:
            self._tell_unsound(name, content.unsound)
        if content.dead:
            self._write(reader, name, content, reader.size, [])

    def _mentions_deleted(self, reader: EntryLogReader) -> bool:
        """Whether a deleted ledger may have records there."""
        sizes = reader.ledgers_map()
        return bool(self._deleted) and not (isinstance(sizes, dict) and self._deleted.isdisjoint(sizes))

    def _content(self, reader: EntryLogReader, end: int, *, proven: int) -> _Content:
        """What begins before `end`; before `proven` every byte has to make sense."""
        content = _Content()
        for item in entrylog_scan.items(reader):
            if isinstance(item, EndOfData | Torn | Damaged):
                if item.offset < proven or (isinstance(item, Damaged) and item.offset < end):
                    content.miss(item.offset)
            elif isinstance(item, LogMap) or _start(item) >= end:
                break
            elif isinstance(item, Hole):
                content.miss(item.offset)
            elif isinstance(item, LogEntry):
                self._count(content, item)
        return content

    def _count(self, content: _Content, entry: LogEntry) -> None:
        ledger_id, entry_id = entry.ids
        size = entry.end - entry.position.offset
        is_dead = (
            ledger_id in self._deleted
            and self._index.find(ledger_id, entry_id) != entry.position.location.pack()
        )
        if is_dead:
            content.dead.append((entry.position.offset, size))
        else:
            content.sizes[ledger_id] += size

    def _save(self, name: str, start: int) -> None:
        saved = save_aside(self._directory, name, start, self._quarantine)
        if saved is not None:
            self.done.saved.append(saved)

    def _tell_unsound(self, name: str, offset: int) -> None:
        words = "bytes that make no sense: a bookie's scans may stop here, or find what does not count"
        self.done.findings.append(f"ELG-004 {name}@{offset}: {words}")

    def _write(
        self,
        reader: EntryLogReader,
        name: str,
        content: _Content,
        end: int,
        behind: list[tuple[int, list[bytes]]],
    ) -> None:
        """A copy takes the log's place: as it is up to `end`, blanks for the dead, and what goes behind."""
        draft = filenames.draft(name)
        if draft in self._directory.names():
            self._directory.remove(draft)
        with self._directory.create(draft) as copy:
            for offset, piece in reader.window.pieces(0, end):
                copy.write(offset, [bytes(piece)])
            for offset, size in content.dead:
                copy.write(offset, [codec.encode_blank(size)])
            for offset, buffers in behind:
                copy.write(offset, buffers)
            # Before the rename: the name must never stand for less than it did.
            copy.sync()
        self._directory.rename(draft, name)
        self.done.written.append(name)
        self.done.blanked += len(content.dead)


def _sealing(sizes: Mapping[int, int], end: int) -> list[tuple[int, list[bytes]]]:
    """What makes a log of ours a sealed one, and where it goes."""
    filler = codec.encode_filler(end)
    map_offset = end + len(filler) if sizes else 0
    return [
        (end, [filler, *codec.encode_ledgers_map(sizes)]),
        (codec.MAP_FIELDS_OFFSET, [codec.encode_map_fields(map_offset, len(sizes))]),
    ]


def _start(item: LogEntry | LogFiller | Hole) -> int:
    return item.position.offset if isinstance(item, LogEntry) else item.offset


def _is_sealed_at(reader: EntryLogReader, limit: int) -> bool:
    header = reader.header
    return (
        isinstance(header, codec.Header)
        and header.map_offset == limit
        and isinstance(reader.ledgers_map(), dict)
    )
