"""Evidence after damage in a bookie's journal that more was written.

Our own journals have seals for that. A bookie's journal has only the digests of its entries; for a ledger
that cannot be verified, the evidence is a whole flush that is well framed, in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.disk.search import find_record
from storage.entry import format as entry_format
from storage.entry.read_result import Damaged, EndOfData
from storage.journal import format as journal_format

if TYPE_CHECKING:
    from storage.entry.digest_inference import EntryVerifier
    from storage.journal.reader import JournalReader, StoredRecord

_SMALL = 8 << 10
"""Up to this size a checksum costs less than a look at what follows."""

_CHAIN = 3
"""This many well framed records in a row are no accident, in a version that does not pad."""


def proof_after(reader: JournalReader, verifier: EntryVerifier, offset: int) -> int | None:
    """Return the first offset after `offset` where something stands that was certainly written."""
    return find_record(
        reader.window,
        offset + 1,
        lambda place: _is_entry(reader, verifier, place, reader.size) or _is_flush(reader, verifier, place),
        reader.size,
    )


def length_overran(reader: JournalReader, verifier: EntryVerifier, item: StoredRecord) -> bool:
    """Return whether the record's length has grown over the records after it.

    They then stand inside, up to its end.
    """
    inside = find_record(
        reader.window, item.offset + 1, lambda place: _is_entry(reader, verifier, place, item.end), item.end
    )
    while inside is not None and inside < item.end:
        frame = reader.frame_at(inside)
        inside = frame.end if isinstance(frame, journal_format.JournalFrame) else None
    return inside == item.end


def _is_entry(reader: JournalReader, verifier: EntryVerifier, place: int, limit: int) -> bool:
    frame = reader.frame_at(place)
    if (
        not isinstance(frame, journal_format.JournalFrame)
        or frame.kind is not journal_format.JournalFrameKind.RECORD
        or frame.end > limit
    ):
        return False
    ledger_id, _ = entry_format.IDS.unpack_from(reader.window.peek(frame.body, entry_format.IDS.size))
    if frame.end - frame.body > _SMALL and verifier.digester(ledger_id) is None:
        # A false record inside a payload hardly ever names a known ledger. A true record is followed by
        # something.
        return _goes_on_at(reader, frame.end) and verifier.proves(reader.body(frame))
    return verifier.proves(reader.body(frame))


def _goes_on_at(reader: JournalReader, offset: int) -> bool:
    frame = reader.frame_at(offset)
    if (
        not isinstance(frame, journal_format.JournalFrame)
        or frame.kind is journal_format.JournalFrameKind.PADDING
    ):
        return isinstance(frame, journal_format.JournalFrame | EndOfData)
    _, entry_id = entry_format.IDS.unpack_from(reader.window.peek(frame.body, entry_format.IDS.size))
    head = entry_format.decode_head(reader.window.peek(frame.body, entry_format.HEAD.size))
    is_special = entry_id in (journal_format.LEDGER_KEY, journal_format.FENCE, journal_format.EXPLICIT_LAC)
    return is_special or (not isinstance(head, Damaged) and head.last_add_confirmed < head.entry_id)


def _is_flush(reader: JournalReader, verifier: EntryVerifier, place: int) -> bool:
    """Return whether well framed records that cannot be verified stand there, up to the end of a flush."""
    if reader.framing.pads and place % journal_format.HEADER_SIZE_MAX:
        return False
    at, count = place, 0
    while isinstance(frame := reader.frame_at(at), journal_format.JournalFrame):
        if frame.kind is journal_format.JournalFrameKind.PADDING:
            return count > 0 and frame.end % journal_format.HEADER_SIZE_MAX == 0
        if not _is_unverifiable(reader, verifier, frame):
            return False
        at, count = frame.end, count + 1
        if count >= _CHAIN and not reader.framing.pads:
            return True
        if reader.framing.pads and at % journal_format.HEADER_SIZE_MAX == 0:
            return True
    return False


def _is_unverifiable(
    reader: JournalReader, verifier: EntryVerifier, frame: journal_format.JournalFrame
) -> bool:
    _, entry_id = entry_format.IDS.unpack_from(reader.window.peek(frame.body, entry_format.IDS.size))
    if entry_id in (journal_format.LEDGER_KEY, journal_format.FENCE, journal_format.EXPLICIT_LAC):
        return not isinstance(
            journal_format.decode_record(reader.body(frame), reader.framing.version), Damaged
        )
    head = entry_format.decode_head(reader.window.peek(frame.body, entry_format.HEAD.size))
    if isinstance(head, Damaged):
        return False
    known = verifier.digester(head.ledger_id)
    return known is None or not known.verifies
