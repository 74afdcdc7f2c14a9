"""What proves, behind damage in a bookie's journal, that more was written.

Our own journals have seals for that. A bookie's have only the digests of their entries; and where a ledger's
cannot be verified, a whole flush that is framed well, in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.codec import entry as entry_codec
from storage.codec import journal as codec
from storage.outcome import Damaged, EndOfData
from storage.resync import find_record

if TYPE_CHECKING:
    from storage.codec.survey import EntryVerifier
    from storage.journal_reader import JournalReader, StoredRecord

_SMALL = 8 << 10
"""Up to this size a checksum costs less than looking at what follows."""

_CHAIN = 3
"""So many records in a row are no accident, in a version that does not pad."""


def proof_behind(reader: JournalReader, verifier: EntryVerifier, offset: int) -> int | None:
    """The first place behind `offset` where something stands that was certainly written."""
    return find_record(
        reader.window,
        offset + 1,
        lambda place: _is_entry(reader, verifier, place, reader.size) or _is_flush(reader, verifier, place),
        reader.size,
    )


def has_swallowed(reader: JournalReader, verifier: EntryVerifier, item: StoredRecord) -> bool:
    """Whether the record's length has grown over the records behind it: they stand inside, up to its end."""
    inside = find_record(
        reader.window, item.offset + 1, lambda place: _is_entry(reader, verifier, place, item.end), item.end
    )
    while inside is not None and inside < item.end:
        frame = reader.frame_at(inside)
        inside = frame.end if isinstance(frame, codec.Frame) else None
    return inside == item.end


def _is_entry(reader: JournalReader, verifier: EntryVerifier, place: int, limit: int) -> bool:
    frame = reader.frame_at(place)
    if not isinstance(frame, codec.Frame) or frame.kind is not codec.FrameKind.RECORD or frame.end > limit:
        return False
    ledger_id, _ = entry_codec.IDS.unpack_from(reader.window.peek(frame.body, entry_codec.IDS.size))
    if frame.end - frame.body > _SMALL and verifier.digester(ledger_id) is None:
        # A place inside a payload hardly ever names a known ledger; a true one goes on to something.
        return _goes_on_at(reader, frame.end) and verifier.proves(reader.body(frame))
    return verifier.proves(reader.body(frame))


def _goes_on_at(reader: JournalReader, offset: int) -> bool:
    frame = reader.frame_at(offset)
    if not isinstance(frame, codec.Frame) or frame.kind is codec.FrameKind.PADDING:
        return isinstance(frame, codec.Frame | EndOfData)
    _, entry_id = entry_codec.IDS.unpack_from(reader.window.peek(frame.body, entry_codec.IDS.size))
    head = entry_codec.decode_head(reader.window.peek(frame.body, entry_codec.HEAD.size))
    is_special = entry_id in (codec.LEDGER_KEY, codec.FENCE, codec.EXPLICIT_LAC)
    return is_special or (not isinstance(head, Damaged) and head.last_add_confirmed < head.entry_id)


def _is_flush(reader: JournalReader, verifier: EntryVerifier, place: int) -> bool:
    """Whether records that nothing can verify stand there in good order, up to the end of a flush."""
    if reader.framing.pads and place % codec.HEADER_SIZE_MAX:
        return False
    at, count = place, 0
    while isinstance(frame := reader.frame_at(at), codec.Frame):
        if frame.kind is codec.FrameKind.PADDING:
            return count > 0 and frame.end % codec.HEADER_SIZE_MAX == 0
        if not _is_unverifiable(reader, verifier, frame):
            return False
        at, count = frame.end, count + 1
        if count >= _CHAIN and not reader.framing.pads:
            return True
        if reader.framing.pads and at % codec.HEADER_SIZE_MAX == 0:
            return True
    return False


def _is_unverifiable(reader: JournalReader, verifier: EntryVerifier, frame: codec.Frame) -> bool:
    _, entry_id = entry_codec.IDS.unpack_from(reader.window.peek(frame.body, entry_codec.IDS.size))
    if entry_id in (codec.LEDGER_KEY, codec.FENCE, codec.EXPLICIT_LAC):
        return not isinstance(codec.decode_record(reader.body(frame), reader.framing.version), Damaged)
    head = entry_codec.decode_head(reader.window.peek(frame.body, entry_codec.HEAD.size))
    if isinstance(head, Damaged):
        return False
    known = verifier.digester(head.ledger_id)
    return known is None or not known.verifies
