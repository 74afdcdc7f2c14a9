"""The records of a journal of ours that a scan has found sound, in batches: what replay is made of."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.codec import blocks
from storage.codec import journal as codec
from storage.codec.seal import StoredSeal
from storage.outcome import Damaged
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.journal_reader import JournalReader


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """The records of one group, or of a piece of one; none of the next group's are ever with them.

    The three columns hold its entries, `special` all else with the place it stands in.
    """

    end: int
    """Behind the last of them; behind the padding where the group ends."""
    ledger_ids: list[int]
    entry_ids: list[int]
    records: list[bytes]
    """Each with its length word in front, a copy."""
    special: list[tuple[int, codec.Record]]
    ends_group: bool
    """Whether a seal ends it. Only there can another reading of the journal begin."""

    def runs(self) -> Iterator[tuple[int, int, list[bytes]]]:
        """The entries in runs of consecutive ids: ledger, first id, records."""
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
    """The records in [start, end), which a scan has found sound or kept; the last batch ends at `end`.

    Nothing is verified again. What does not frame any more is an `OSError`: the file has changed.
    """
    if end > reader.size:
        raise _changed(reader)
    at = max(start, reader.records_start)
    while at < end:
        # A copy: slices of bytes cost half of those of a view, and looking at one thing moves the window.
        block = bytes(reader.window.rest(at)[: end - at])
        for batch in _batches(reader, block, at, end):
            yield batch
            at = batch.end


def _batches(reader: JournalReader, block: bytes, offset: int, end: int) -> Iterator[RecordBatch]:
    """The batches of a block; what begins in it and goes on behind it is in the last one."""
    at, limit, batch = offset, offset + len(block), _Gathering(offset)
    while True:
        at = offset + blocks.take_entries(block, at - offset, batch.entries)
        if at >= limit:
            break
        sealed = blocks.sealed_end(block, at - offset)
        at = batch.take(reader, at, end) if sealed is None else offset + sealed
        if sealed is not None or batch.is_sealed:
            yield batch.upto(at, ends_group=True)
            batch = _Gathering(at)
    if at > batch.start:
        yield batch.upto(at, ends_group=False)


class _Gathering:
    """A batch that is being gathered."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.entries = blocks.Entries([], [], [])
        self.special: list[tuple[int, codec.Record]] = []
        self.is_sealed = False
        """Whether the last thing taken has ended the group."""

    def upto(self, end: int, *, ends_group: bool) -> RecordBatch:
        return RecordBatch(end, *self.entries, self.special, ends_group)

    def take(self, reader: JournalReader, at: int, end: int) -> int:
        """Takes the one thing that stands there, whatever it is and however large."""
        frame = reader.frame_at(at)
        if not isinstance(frame, codec.Frame) or frame.end > end:
            raise _changed(reader)
        if frame.kind is codec.FrameKind.PADDING:
            self.is_sealed = isinstance(reader.padding(frame).seal, StoredSeal)
        else:
            self._take_record(reader, frame)
        return frame.end

    def _take_record(self, reader: JournalReader, frame: codec.Frame) -> None:
        record = bytes(reader.window.view(frame.offset, frame.end - frame.offset))
        if blocks.take_entries(record, 0, self.entries):
            return
        special = codec.decode_record(record[LENGTH_WORD_SIZE:], reader.framing.version)
        if isinstance(special, Damaged):
            # Under a seal that holds it is one we wrote: it must not be passed over.
            raise OSError(errno.EIO, f"no record we write, at {frame.offset}: {special}", reader.name)
        self.special.append((frame.offset, special))


def _changed(reader: JournalReader) -> OSError:
    return OSError(errno.EIO, "the file changed while it was read", reader.name)
