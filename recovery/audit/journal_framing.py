"""Whether what stands at a place in a damaged journal is a record, and whether its length can be believed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from recovery.verify.parts import FlawAt, FlawKind
from storage.codec import journal as codec
from storage.codec.digest import DigestCheck
from storage.codec.entry import HEAD, IDS, check_digest, decode_head
from storage.codec.survey import matching_checksum
from storage.entry import RECORD_SIZE_MAX
from storage.journal_proof import has_swallowed
from storage.journal_reader import StoredPadding, StoredRecord
from storage.outcome import Damaged, EndOfData, Flaw, Torn
from storage.position import LENGTH_WORD_SIZE
from storage.resync import find_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.codec.survey import EntryVerifier
    from storage.journal_reader import JournalReader
    from storage.outcome import Stop

_SPECIAL_MAX = 64 << 10
_SPECIAL_ID_AT = LENGTH_WORD_SIZE + 8
_SPECIAL_IDS = re.compile(
    b"|".join(
        re.escape(one.to_bytes(8, signed=True)) for one in (codec.LEDGER_KEY, codec.FENCE, codec.EXPLICIT_LAC)
    )
)
_SECTOR = codec.HEADER_SIZE_MAX
_SEAL_ZEROS_MAX = 4
"""Of its checksum, which is the last of it."""

_HOPS_MAX = 64
"""So many records in a row may be damaged, each by itself, before their framing is no more believed."""


class Around(NamedTuple):
    """What is wrong at a place, and where it goes on behind that."""

    flaws: list[FlawAt]
    behind: int
    is_framed: bool
    """Whether the framing holds, so that nothing was passed over."""


class Framing:
    """Of one journal, up to `end`."""

    def __init__(self, reader: JournalReader, verifier: EntryVerifier, end: int) -> None:
        self.end = end
        self._reader = reader
        self._verifier = verifier

    def item(self, at: int) -> StoredRecord | StoredPadding | Stop:
        """What begins there; what goes on behind the end is taken for torn."""
        item = self._reader.item_at(at)
        if (
            isinstance(item, StoredRecord | StoredPadding)
            and item.end > self.end
            and not self._is_whole(item)
        ):
            return Torn(at, Flaw.BODY_CUT)
        return item

    def _is_whole(self, item: StoredRecord | StoredPadding) -> bool:
        """Whether it is padding whose seal ends in zeros: the data seems to end in front of them."""
        is_close = isinstance(item, StoredPadding) and item.end - self.end < _SEAL_ZEROS_MAX
        return is_close and not any(self._reader.window.view(self.end, item.end - self.end))

    def check(self, data: bytes) -> DigestCheck:
        """What the digest says; counts as no evidence, since what stands here may be damaged."""
        ledger_id, _ = IDS.unpack_from(data)
        known = self._verifier.digester(ledger_id)
        if known is None:
            return DigestCheck.OK if matching_checksum(data) else DigestCheck.UNVERIFIED
        return check_digest(data, known)

    def proves(self, place: int) -> bool:
        """Whether an entry begins there that its digest proves."""
        frame = self._reader.frame_at(place)
        return (
            isinstance(frame, codec.Frame)
            and frame.kind is codec.FrameKind.RECORD
            and frame.end <= self.end
            and self._verifier.proves(self._reader.body(frame))
        )

    def first_special(self, start: int, end: int) -> int:
        """Where records that are no entries begin, one behind the other up to `end`; if none do, there."""
        begin = max(start, end - _SPECIAL_MAX)
        block = bytes(self._reader.window.view(begin, end - begin))
        ids = (begin + found.start() - _SPECIAL_ID_AT for found in _SPECIAL_IDS.finditer(block))
        return next((place for place in ids if place >= start and self._leads_to(place, end)), end)

    def _leads_to(self, place: int, end: int) -> bool:
        while place < end:
            item = self.item(place)
            if not isinstance(item, StoredRecord) or isinstance(
                item.record, codec.EntryRecord | codec.UnknownRecord | Damaged
            ):
                return False
            place = item.end
        return place == end

    def ids(self, at: int) -> tuple[int | None, int | None]:
        """Ledger and entry of the record there, as far as its head makes sense."""
        data = self._reader.window.peek(at + LENGTH_WORD_SIZE, HEAD.size)
        if len(data) < IDS.size or not any(data):
            return None, None  # zeros say nothing either
        ledger_id, entry_id = IDS.unpack_from(data)
        return (None, None) if min(ledger_id, entry_id) < 0 else (ledger_id, entry_id)

    def around_record(
        self, item: StoredRecord, kind: FlawKind, damage: Damaged, next_place: Callable[[int], int]
    ) -> Around:
        """A record that is wrong. Its length may be what is wrong: then it goes on at the next place."""
        ids = self.ids(item.offset)
        whole = FlawAt(kind, damage.flaw, item.offset, item.end, *ids, damage.detail)
        if self._goes_on_behind(item) and not has_swallowed(self._reader, self._verifier, item):
            return Around([whole], item.end, is_framed=True)
        behind = next_place(item.offset + 1)
        if self._is_entry(item.offset, behind):
            told = f"length {item.end - item.offset - LENGTH_WORD_SIZE}"
            flaw = FlawAt(FlawKind.RECORD, Flaw.INNER_LENGTH, item.offset, behind, *ids, told)
            return Around([flaw], behind, is_framed=False)
        end = min(item.end, behind)
        flaws = [FlawAt(kind, damage.flaw, item.offset, end, *ids, damage.detail)]
        if end < behind:
            flaws.append(FlawAt(FlawKind.HOLE, Flaw.NOT_A_RECORD, end, behind))
        return Around(flaws, behind, is_framed=False)

    def around_stop(self, stop: Stop, behind: int) -> FlawAt:
        """Bytes that are no record; or an entry, but for its length word."""
        flaw, detail = _what(stop)
        if self._is_entry(stop.offset, behind):
            ids = self.ids(stop.offset)
            return FlawAt(FlawKind.RECORD, flaw, stop.offset, behind, *ids, detail)
        return FlawAt(FlawKind.HOLE, flaw, stop.offset, self._zeroed_up_to(stop, behind), detail=detail)

    def _zeroed_up_to(self, stop: Stop, behind: int) -> int:
        """Where the record ends by its own length, if nothing but zeros stands where its last bytes were."""
        item = self._reader.item_at(stop.offset) if behind == self.end else None
        if not isinstance(item, StoredRecord) or item.end <= behind:
            return behind
        rest = self._reader.window.view(behind, item.end - behind)
        return behind if any(rest) else item.end

    def _is_entry(self, start: int, end: int) -> bool:
        """Whether these bytes are an entry but for their length word."""
        size = end - start - LENGTH_WORD_SIZE
        return 0 < size <= RECORD_SIZE_MAX and self._verifier.proves(
            self._reader.window.view(start + LENGTH_WORD_SIZE, size)
        )

    def _goes_on_behind(self, item: StoredRecord) -> bool:
        """Whether the framing holds behind it, be the next records damaged too."""
        if self._ends_in_padding(item):
            return False
        if not isinstance(self.item(item.end), EndOfData):
            return self._goes_on_at(item.end)
        # Zeros follow any length that is too large: what was whole inside of it shows that it is.
        return find_record(self._reader.window, item.offset + 1, self.proves, item.end) is None

    def _ends_in_padding(self, item: StoredRecord) -> bool:
        """Whether its length has grown over the word that padding begins with.

        The length of the padding would pass for that of another record.
        """
        edge = item.end - LENGTH_WORD_SIZE
        word = self._reader.window.view(edge, LENGTH_WORD_SIZE)
        return word == codec.PADDING_WORD and self._is_entry(item.offset, edge)

    def _goes_on_at(self, place: int) -> bool:
        for _ in range(_HOPS_MAX):
            if place == self.end:
                return True
            item = self.item(place)
            if isinstance(item, StoredPadding):
                return item.end % _SECTOR == 0
            if not isinstance(item, StoredRecord):
                return isinstance(item, EndOfData)
            if not isinstance(item.record, codec.EntryRecord):
                return not isinstance(item.record, Damaged | codec.UnknownRecord)
            if isinstance(decode_head(item.record.data), Damaged):
                return False
            check = self.check(item.record.data)
            if check is DigestCheck.UNVERIFIED and self._verifier.doubts(item.record.ledger_id):
                return False
            if check is not DigestCheck.MISMATCH:
                return True
            place = item.end
        return False


def _what(stop: Stop) -> tuple[Flaw, str]:
    match stop:
        case Damaged(flaw=flaw, detail=detail):
            return flaw, detail
        case Torn(flaw=flaw):
            return flaw, ""
    return Flaw.NOT_A_RECORD, ""
