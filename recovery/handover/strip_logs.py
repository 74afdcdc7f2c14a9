"""Strips entry logs of what a bookie would take for entries: leftovers and entries of deleted ledgers.

A bookie knows neither the durable end of a log, after which an interrupted checkpoint may have left records,
nor our tombstones. So a log with such records is written again: up to its end, with blanks in the place of
the records of deleted ledgers, and with its ledgers map. Entries that count keep their locations, and the
index stays as it is. A log without such records is not touched.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.replay.known_digests import PresumedDigests
from recovery.replay.torn_tails import save_aside
from storage.disk import filenames
from storage.disk.replace import replacing
from storage.entry.digest_inference import EntryVerifier
from storage.entry.read_result import Damaged, EndOfData, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.log_set import log_ids
from storage.entrylog.reader import EntryLogReader, LogEntry, LogMap
from storage.entrylog.scan import Hole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.disk.files import Directory
    from storage.entry.ledger_record import LedgerRecord
    from storage.index.port import Index
    from storage.open_report import TornTail


@dataclass(slots=True)
class StrippedLogs:
    """The result of stripping the entry logs of a directory."""

    written: list[str] = field(default_factory=list)
    """The logs that were written again."""
    blanked: int = 0
    """How many records of deleted ledgers were replaced by blanks."""
    saved: list[TornTail] = field(default_factory=list)
    """The bytes after the ends of logs, in the quarantine."""
    findings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _DurableContent:
    """The content of a log up to where it counts."""

    sizes: Counter[int] = field(default_factory=Counter)
    """Bytes of each ledger, without deleted records."""
    deleted_records: list[tuple[int, int]] = field(default_factory=list)
    """Offset and size of each record of a deleted ledger."""
    unsound: int | None = None
    """The first offset that cannot be decoded."""

    def miss(self, offset: int) -> None:
        self.unsound = offset if self.unsound is None else self.unsound


def strip_logs(
    directory: Directory, index: Index, rows: Mapping[int, LedgerRecord], quarantine: Directory
) -> StrippedLogs:
    """Change the logs so that a scan finds what counts and nothing else.

    The caller holds the directory's lock and has made a checkpoint. Each log is replaced in one step, durably
    after the directory's next `sync`; a power cut before that leaves the old log.
    """
    stripper = _LogStripper(directory, index, rows, quarantine)
    for log_id, end in sorted(index.state().log_ends.items()):
        if log_id in stripper.present:
            stripper.strip(log_id, end)
    return stripper.done


class _LogStripper:
    """Strips one log after the other."""

    def __init__(
        self, directory: Directory, index: Index, rows: Mapping[int, LedgerRecord], quarantine: Directory
    ) -> None:
        self.done = StrippedLogs()
        self.present = {*log_ids(directory)}
        self._directory = directory
        self._index = index
        self._declared = PresumedDigests(rows)
        self._deleted = {row.ledger_id for row in rows.values() if row.tombstone or row.truncation}
        self._quarantine = quarantine

    def strip(self, log_id: int, end: int) -> None:
        """Write the log again if necessary."""
        name = filenames.entry_log(log_id)
        with self._directory.open(name) as file:
            reader = EntryLogReader(file, log_id, EntryVerifier(self._declared))
            match reader.header:
                case entrylog_format.LogHeader(origin=entrylog_format.Origin()) if (
                    end > entrylog_format.HEADER_SIZE
                ):
                    self._strip_ours(reader, name, end)
                case entrylog_format.LogHeader() if self._deleted:
                    self._strip_other(reader, name)
                case Damaged() as damaged:
                    self._report_unsound(name, damaged.offset)

    def _strip_ours(self, reader: EntryLogReader, name: str, end: int) -> None:
        limit = end + len(entrylog_format.encode_filler(end))
        is_sealed = _is_sealed_at(reader, limit)
        if is_sealed and not self._mentions_deleted(reader):
            return
        content = self._content(reader, end, proven=end)
        if content.unsound is not None:
            self._report_unsound(name, content.unsound)
        if is_sealed and not content.deleted_records:
            return
        if not is_sealed:
            self._save(name, limit)
        # An unsound log gets no map, because the map of a part would be believed. It is scanned instead.
        sizes = content.sizes if content.unsound is None else Counter[int]()
        self._write(reader, name, content, end, _sealing(sizes, end))

    def _strip_other(self, reader: EntryLogReader, name: str) -> None:
        """Strip a bookie's log, or one of ours that a bookie may have written to, of deleted ledgers only."""
        if not self._mentions_deleted(reader):
            return
        content = self._content(reader, reader.size, proven=0)
        if content.unsound is not None:
            self._report_unsound(name, content.unsound)
        if content.deleted_records:
            self._write(reader, name, content, reader.size, [])

    def _mentions_deleted(self, reader: EntryLogReader) -> bool:
        """Return whether the log may have records of a deleted ledger."""
        sizes = reader.ledgers_map()
        return bool(self._deleted) and not (isinstance(sizes, dict) and self._deleted.isdisjoint(sizes))

    def _content(self, reader: EntryLogReader, end: int, *, proven: int) -> _DurableContent:
        """Read the records that begin before `end`. Every byte before `proven` must decode."""
        content = _DurableContent()
        for item in entrylog_scan.items(reader):
            if isinstance(item, EndOfData | Torn | Damaged):
                if item.offset < proven or (isinstance(item, Damaged) and item.offset < end):
                    content.miss(item.offset)
            elif isinstance(item, LogMap) or item.offset >= end:
                break
            elif isinstance(item, Hole):
                content.miss(item.offset)
            elif isinstance(item, LogEntry):
                self._count(content, item)
        return content

    def _count(self, content: _DurableContent, entry: LogEntry) -> None:
        ledger_id, entry_id = entry.ids
        size = entry.end - entry.position.offset
        is_dead = (
            ledger_id in self._deleted
            and self._index.find(ledger_id, entry_id) != entry.position.location.pack()
        )
        if is_dead:
            content.deleted_records.append((entry.position.offset, size))
        else:
            content.sizes[ledger_id] += size

    def _save(self, name: str, start: int) -> None:
        saved = save_aside(self._directory, name, start, self._quarantine)
        if saved is not None:
            self.done.saved.append(saved)

    def _report_unsound(self, name: str, offset: int) -> None:
        words = "bytes that cannot be decoded: a bookie's scans may stop here, or find what does not count"
        self.done.findings.append(f"ELG-004 {name}@{offset}: {words}")

    def _write(
        self,
        reader: EntryLogReader,
        name: str,
        content: _DurableContent,
        end: int,
        after: list[tuple[int, list[bytes]]],
    ) -> None:
        """Replace the log by a copy: the bytes up to `end`, blanks for deleted records, then `after`."""
        # Durable before it gets the name, because the name must never have less content than before.
        with replacing(self._directory, name) as copy:
            for offset, piece in reader.window.pieces(0, end):
                copy.write(offset, [bytes(piece)])
            for offset, size in content.deleted_records:
                copy.write(offset, [entrylog_format.encode_blank(size)])
            for offset, buffers in after:
                copy.write(offset, buffers)
        copy.close()
        self.done.written.append(name)
        self.done.blanked += len(content.deleted_records)


def _sealing(sizes: Mapping[int, int], end: int) -> list[tuple[int, list[bytes]]]:
    """Return the bytes that make a log of ours a sealed one, each with its offset."""
    filler = entrylog_format.encode_filler(end)
    map_offset = end + len(filler) if sizes else 0
    records = entrylog_format.encode_ledgers_map(sizes)
    checksum = entrylog_format.encode_map_checksum(map_offset, records, len(sizes))
    return [
        (end, [filler, *records]),
        (entrylog_format.MAP_CHECKSUM_OFFSET, [checksum]),
        (entrylog_format.MAP_FIELDS_OFFSET, [entrylog_format.encode_map_fields(map_offset, len(sizes))]),
    ]


def _is_sealed_at(reader: EntryLogReader, limit: int) -> bool:
    header = reader.header
    return (
        isinstance(header, entrylog_format.LogHeader)
        and header.map_offset == limit
        and isinstance(reader.ledgers_map(), dict)
    )
