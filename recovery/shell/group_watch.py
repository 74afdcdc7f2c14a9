"""Following the groups of a journal of ours while its items go by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.codec.seal import GroupFlag, NoSeal
from storage.outcome import Flaw

if TYPE_CHECKING:
    from storage.codec.seal import StoredSeal
    from storage.journal_reader import JournalReader, StoredPadding, StoredRecord

_FIRST_SEQUENCE = 1


class GroupWatch:
    """Judges each seal by itself and by what was seen of its group. Behind damage it starts anew."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._sequence: int | None = None
        self.open_from: int | None = None
        """Where the first record stands that no seal has vouched for yet."""
        self.begin(0)

    def begin(self, offset: int) -> None:
        """A group begins here; its number is known only where the file begins."""
        at_the_start = offset <= self._reader.records_start
        self._begin(offset, _FIRST_SEQUENCE if at_the_start else None)

    def _begin(self, offset: int, sequence: int | None) -> None:
        self._start = max(offset, self._reader.records_start)
        self._sequence = sequence
        self._records = 0
        self._flags = GroupFlag.NONE
        self.open_from = None

    def record(self, item: StoredRecord) -> None:
        self._records += 1
        self.open_from = item.offset if self.open_from is None else self.open_from

    def padding(self, item: StoredPadding) -> Flaw | None:
        """What is wrong with the padding or its seal."""
        if not isinstance(item.seal, NoSeal):
            return self._sealed(item.seal, item.end)
        if item.atomic_mark:
            self._flags = GroupFlag.ATOMIC
        elif item.offset == self._reader.records_start:
            self._start = item.end
        else:
            return Flaw.SEAL_MISSING
        return None

    def _sealed(self, stored: StoredSeal, end: int) -> Flaw | None:
        seal, expected = stored.seal, self._sequence
        flaw = self._reader.seal_flaw(stored, end)
        found = (self._start, self._records, self._flags)
        if flaw is None and (seal.group_start, seal.record_count, seal.flags) != found:
            flaw = Flaw.SEAL_PLACE
        # Behind a group that does not hold the next one may have any number; it is no second finding.
        opened = self.open_from
        self._begin(end, None if flaw else seal.sequence + 1)
        if flaw is not None:
            self.open_from = opened
            return flaw
        return Flaw.SEAL_ORDER if expected not in (None, seal.sequence) else None
