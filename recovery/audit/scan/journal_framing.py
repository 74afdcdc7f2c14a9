"""Decide whether a place in a damaged journal holds a record, and whether its length can be trusted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from recovery.audit.model.scan_results import FlawAt, FlawKind
from storage.disk.search import find_record
from storage.entry.digest import DigestCheck
from storage.entry.digest_inference import matching_checksum
from storage.entry.format import HEAD, IDS, check_digest, decode_head
from storage.entry.model import RECORD_SIZE_MAX
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.journal import format as journal_format
from storage.journal.later_writes import length_overran
from storage.journal.reader import StoredPadding, StoredRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.entry.digest_inference import EntryVerifier
    from storage.entry.read_result import Stop
    from storage.journal.reader import JournalReader

_SPECIAL_MAX = 64 << 10
_SPECIAL_ID_AT = LENGTH_WORD_SIZE + 8
_SPECIAL_IDS = re.compile(
    b"|".join(
        re.escape(one.to_bytes(8, signed=True))
        for one in (journal_format.LEDGER_KEY, journal_format.FENCE, journal_format.EXPLICIT_LAC)
    )
)
_SECTOR = journal_format.HEADER_SIZE_MAX
_SEAL_ZEROS_MAX = 4
"""The checksum is the end of a seal."""

_HOPS_MAX = 64
"""The number of consecutive damaged records after which their framing is not trusted any more."""


class DamageExtent(NamedTuple):
    """The damage at a place, and the offset at which reading continues."""

    flaws: list[FlawAt]
    resume_at: int
    is_framed: bool
    """Whether the framing is intact, so that nothing was skipped."""


class JournalFraming:
    """The framing of one journal up to `end`."""

    def __init__(self, reader: JournalReader, verifier: EntryVerifier, end: int) -> None:
        self.end = end
        self._reader = reader
        self._verifier = verifier

    def item(self, at: int) -> StoredRecord | StoredPadding | Stop:
        """Return what begins here. A record that extends beyond the end counts as torn."""
        item = self._reader.item_at(at)
        if (
            isinstance(item, StoredRecord | StoredPadding)
            and item.end > self.end
            and not self._is_whole(item)
        ):
            return Torn(at, Flaw.BODY_CUT)
        return item

    def _is_whole(self, item: StoredRecord | StoredPadding) -> bool:
        """Return whether it is padding whose seal ends in zeros, so that the data seems to end
        before them.
        """
        is_close = isinstance(item, StoredPadding) and item.end - self.end < _SEAL_ZEROS_MAX
        return is_close and not any(self._reader.window.view(self.end, item.end - self.end))

    def check(self, data: bytes) -> DigestCheck:
        """Verify an entry. It does not count as evidence for digest types, because it may be damaged."""
        ledger_id, _ = IDS.unpack_from(data)
        known = self._verifier.digester(ledger_id)
        if known is None:
            return DigestCheck.OK if matching_checksum(data) else DigestCheck.UNVERIFIED
        return check_digest(data, known)

    def proves(self, place: int) -> bool:
        """Return whether an entry begins here that its digest proves."""
        frame = self._reader.frame_at(place)
        return (
            isinstance(frame, journal_format.JournalFrame)
            and frame.kind is journal_format.JournalFrameKind.RECORD
            and frame.end <= self.end
            and self._verifier.proves(self._reader.body(frame))
        )

    def first_special(self, start: int, end: int) -> int:
        """Return where consecutive non-entry records begin that lead up to `end`, or `end` if
        there are none.
        """
        begin = max(start, end - _SPECIAL_MAX)
        block = bytes(self._reader.window.view(begin, end - begin))
        ids = (begin + found.start() - _SPECIAL_ID_AT for found in _SPECIAL_IDS.finditer(block))
        return next((place for place in ids if place >= start and self._leads_to(place, end)), end)

    def _leads_to(self, place: int, end: int) -> bool:
        while place < end:
            item = self.item(place)
            if not isinstance(item, StoredRecord) or isinstance(
                item.record, journal_format.EntryRecord | journal_format.UnknownRecord | Damaged
            ):
                return False
            place = item.end
        return place == end

    def ids(self, at: int) -> tuple[int | None, int | None]:
        """Return ledger and entry of the record here, if its head makes sense."""
        data = self._reader.window.peek(at + LENGTH_WORD_SIZE, HEAD.size)
        if len(data) < IDS.size or not any(data):
            return None, None  # zeros mean nothing either
        ledger_id, entry_id = IDS.unpack_from(data)
        return (None, None) if min(ledger_id, entry_id) < 0 else (ledger_id, entry_id)

    def around_record(
        self, item: StoredRecord, kind: FlawKind, damage: Damaged, next_place: Callable[[int], int]
    ) -> DamageExtent:
        """Return what is wrong around a bad record. If its length is wrong too, reading continues at the next
        place.
        """
        ids = self.ids(item.offset)
        whole = FlawAt(kind, damage.flaw, item.offset, item.end, *ids, damage.detail)
        if self._goes_on_after(item) and not length_overran(self._reader, self._verifier, item):
            return DamageExtent([whole], item.end, is_framed=True)
        after = next_place(item.offset + 1)
        if self._is_entry(item.offset, after):
            detail = f"length {item.end - item.offset - LENGTH_WORD_SIZE}"
            flaw = FlawAt(FlawKind.RECORD, Flaw.INNER_LENGTH, item.offset, after, *ids, detail)
            return DamageExtent([flaw], after, is_framed=False)
        end = min(item.end, after)
        flaws = [FlawAt(kind, damage.flaw, item.offset, end, *ids, damage.detail)]
        if end < after:
            flaws.append(FlawAt(FlawKind.HOLE, Flaw.NOT_A_RECORD, end, after))
        return DamageExtent(flaws, after, is_framed=False)

    def around_stop(self, stop: Stop, after: int) -> FlawAt:
        """Return the flaw for bytes that are no record, or for an entry with a damaged length word."""
        flaw, detail = _flaw_of_stop(stop)
        if self._is_entry(stop.offset, after):
            ids = self.ids(stop.offset)
            return FlawAt(FlawKind.RECORD, flaw, stop.offset, after, *ids, detail)
        return FlawAt(FlawKind.HOLE, flaw, stop.offset, self._zeroed_up_to(stop, after), detail=detail)

    def _zeroed_up_to(self, stop: Stop, after: int) -> int:
        """Return where the record ends by its own length, if only zeros are where its last bytes were."""
        item = self._reader.item_at(stop.offset) if after == self.end else None
        if not isinstance(item, StoredRecord) or item.end <= after:
            return after
        rest = self._reader.window.view(after, item.end - after)
        return after if any(rest) else item.end

    def _is_entry(self, start: int, end: int) -> bool:
        """Return whether these bytes are an entry with a damaged length word."""
        size = end - start - LENGTH_WORD_SIZE
        return 0 < size <= RECORD_SIZE_MAX and self._verifier.proves(
            self._reader.window.view(start + LENGTH_WORD_SIZE, size)
        )

    def _goes_on_after(self, item: StoredRecord) -> bool:
        """Return whether the framing is intact after the item, even if the next records are damaged."""
        if self._ends_in_padding(item):
            return False
        if not isinstance(self.item(item.end), EndOfData):
            return self._goes_on_at(item.end)
        # Zeros follow any length that is too large. A whole record inside it proves that the length is wrong.
        return find_record(self._reader.window, item.offset + 1, self.proves, item.end) is None

    def _ends_in_padding(self, item: StoredRecord) -> bool:
        """Return whether its length has grown over the word that padding begins with.

        The length of the padding would then look like that of another record.
        """
        edge = item.end - LENGTH_WORD_SIZE
        word = self._reader.window.view(edge, LENGTH_WORD_SIZE)
        return word == journal_format.PADDING_WORD and self._is_entry(item.offset, edge)

    def _goes_on_at(self, place: int) -> bool:
        for _ in range(_HOPS_MAX):
            if place == self.end:
                return True
            item = self.item(place)
            if isinstance(item, StoredPadding):
                return item.end % _SECTOR == 0
            if not isinstance(item, StoredRecord):
                return isinstance(item, EndOfData)
            if not isinstance(item.record, journal_format.EntryRecord):
                return not isinstance(item.record, Damaged | journal_format.UnknownRecord)
            if isinstance(decode_head(item.record.data), Damaged):
                return False
            check = self.check(item.record.data)
            if check is DigestCheck.UNVERIFIED and self._verifier.is_doubtful(item.record.ledger_id):
                return False
            if check is not DigestCheck.MISMATCH:
                return True
            place = item.end
        return False


def _flaw_of_stop(stop: Stop) -> tuple[Flaw, str]:
    match stop:
        case Damaged(flaw=flaw, detail=detail):
            return flaw, detail
        case Torn(flaw=flaw):
            return flaw, ""
    return Flaw.NOT_A_RECORD, ""
