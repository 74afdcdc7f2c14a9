"""The records of a journal of ours that a scan has found sound, in batches, as replay takes them.

Nothing is verified here. The walk that verifies is `storage.journal.group_reader.groups`.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.read_result import Damaged
from storage.entry.record_format import PREFIX
from storage.journal import format as journal_format
from storage.journal.group_reader import BLOCK_SIZE_MAX
from storage.journal.seal import StoredSeal, sealed_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.journal.reader import JournalReader


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records of one group, in their order: entries as three columns, and all else in `special`."""

    end: int
    """The end of the last record, or of the padding if the group ends."""
    ledger_ids: list[int]
    entry_ids: list[int]
    records: list[bytes]
    """Copies, each with its length word."""
    special: list[tuple[int, journal_format.Record]]
    """With the offset of each."""
    ends_group: bool
    """Whether a seal ends the batch. Only there can another reading of the journal begin."""

    def runs(self) -> Iterator[tuple[int, int, list[bytes]]]:
        """Return the entries in runs of consecutive ids: ledger, first id, records."""
        start, count = 0, len(self.records)
        for at in range(1, count + 1):
            goes_on = (
                at < count
                and self.entry_ids[at] == self.entry_ids[at - 1] + 1
                and self.ledger_ids[at] == self.ledger_ids[start]
            )
            if not goes_on:
                yield self.ledger_ids[start], self.entry_ids[start], self.records[start:at]
                start = at


def record_batches(reader: JournalReader, start: int, end: int) -> Iterator[RecordBatch]:
    """Return the records in [start, end), which a scan has found sound or kept; the last batch ends at `end`.

    A record that is not framed any more is an `OSError`, because the file has changed since the scan.
    """
    if end > reader.size:
        raise _changed(reader)
    at = max(start, reader.records_start)
    while at < end:
        # Copied, because slices of bytes cost half of those of a view, and a look at one item moves the
        # window.
        block = bytes(reader.window.rest(at)[: end - at])
        for batch in _batches(reader, block, at, end):
            yield batch
            at = batch.end


def _batches(reader: JournalReader, block: bytes, offset: int, end: int) -> Iterator[RecordBatch]:
    """Return the batches of a block. A record that begins in it and ends after it is in the last one."""
    at, limit, batch = offset, offset + len(block), _OpenBatch(offset)
    while True:
        at = offset + take_entries(block, at - offset, batch.entries)
        if at >= limit:
            break
        sealed = sealed_end(block, at - offset)
        at = batch.take(reader, at, end) if sealed is None else offset + sealed
        if sealed is not None or batch.is_sealed:
            yield RecordBatch(at, *batch.entries, batch.special, ends_group=True)
            batch = _OpenBatch(at)
    if at > batch.start:
        yield RecordBatch(at, *batch.entries, batch.special, ends_group=False)


class EntryColumns(NamedTuple):
    """Entries as columns: the two ids of each, and a copy of its record, length word included."""

    ledger_ids: list[int]
    entry_ids: list[int]
    records: list[bytes]


def take_entries(block: bytes, start: int, into: EntryColumns) -> int:
    """Add the entries that follow each other from `start` on; return where the last one ends."""
    assert len(block) <= BLOCK_SIZE_MAX, "a block is a piece of a file"
    unpack_from, size, last = PREFIX.unpack_from, len(block), len(block) - PREFIX.size
    add_ledger_id, add_entry_id = into.ledger_ids.append, into.entry_ids.append
    add_record = into.records.append
    while start <= last:
        length, ledger_id, entry_id = unpack_from(block, start)
        end = start + LENGTH_WORD_SIZE + length
        if length < journal_format.BODY_SIZE_MIN or end > size or (ledger_id | entry_id) < 0:
            break
        add_ledger_id(ledger_id)
        add_entry_id(entry_id)
        add_record(block[start:end])
        start = end
    return start


class _OpenBatch:
    """A batch that is being filled."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.entries = EntryColumns([], [], [])
        self.special: list[tuple[int, journal_format.Record]] = []
        self.is_sealed = False
        """Whether the item taken last has ended the group."""

    def take(self, reader: JournalReader, at: int, end: int) -> int:
        """Take the one item at this offset, of any kind and size; return where it ends."""
        frame = reader.frame_at(at)
        if not isinstance(frame, journal_format.JournalFrame) or frame.end > end:
            raise _changed(reader)
        if frame.kind is journal_format.JournalFrameKind.PADDING:
            self.is_sealed = isinstance(reader.padding(frame).seal, StoredSeal)
        else:
            self._take_record(reader, frame)
        return frame.end

    def _take_record(self, reader: JournalReader, frame: journal_format.JournalFrame) -> None:
        record = bytes(reader.window.view(frame.offset, frame.end - frame.offset))
        if take_entries(record, 0, self.entries):
            return
        special = journal_format.decode_record(record[LENGTH_WORD_SIZE:], reader.framing.version)
        if isinstance(special, Damaged):
            # It must not be skipped, because a record under a seal that holds is one that a store wrote.
            raise OSError(errno.EIO, f"no record we write, at {frame.offset}: {special}", reader.name)
        self.special.append((frame.offset, special))


def _changed(reader: JournalReader) -> OSError:
    return OSError(errno.EIO, "the file changed while it was read", reader.name)
