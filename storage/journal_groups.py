"""The sealed groups that our own journals are made of: each verified by its seal's one checksum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.codec.seal import GroupFlag, Seal, StoredSeal
from storage.journal_reader import StoredPadding, StoredRecord
from storage.outcome import Damaged, EndOfData, Flaw, Stop, Torn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.journal_reader import JournalReader


@dataclass(frozen=True, slots=True)
class Group:
    """A sealed group whose checksum holds."""

    start: int
    end: int
    seal: Seal
    record_count: int


class GroupWatch:
    """Judges each seal by itself, by what was seen of its group, and by the seal before it."""

    def __init__(self, reader: JournalReader, start: int = 0) -> None:
        self._reader = reader
        self._last: Seal | None = None
        self.begin(start)

    def begin(self, offset: int) -> None:
        """A group begins here; its number is known only if it is the first of the file."""
        self._numbers_from_one = offset <= self._reader.records_start
        self._last = None
        self._open(max(offset, self._reader.records_start))

    def _open(self, start: int) -> None:
        self.start = start
        self._records = 0
        self._flags = GroupFlag.NONE
        self.first_record: int | None = None
        """Where the first record stands that no seal has vouched for yet."""

    def record(self, item: StoredRecord) -> None:
        """Counts a record into the group."""
        self._records += 1
        if self.first_record is None:
            self.first_record = item.offset

    def padding(self, item: StoredPadding) -> Group | Damaged | None:
        """The group that the padding seals, or why it does not; `None` while the group goes on."""
        if isinstance(item.seal, StoredSeal):
            return self._sealed(item.seal, item.end)
        if item.atomic_mark and item.offset == self.start:
            self._flags = GroupFlag.ATOMIC
        elif item.offset == self._reader.records_start:
            self.start = item.end
        else:
            return Damaged(item.offset, Flaw.SEAL_MISSING)
        return None

    def _sealed(self, stored: StoredSeal, end: int) -> Group | Damaged:
        seal, start = stored.seal, self.start
        flaw = self._flaw(stored, end)
        if flaw is not None:
            # Behind a group that does not hold, the next one may have any number.
            self.begin(end)
            return Damaged(start, flaw)
        group = Group(start, end, seal, self._records)
        self._last = seal
        self._open(end)
        return group

    def _flaw(self, stored: StoredSeal, end: int) -> Flaw | None:
        seal = stored.seal
        if seal.group_start != self.start:
            return Flaw.OTHER_PLACE
        flaw = self._reader.seal_flaw(stored, end)
        if flaw is not None:
            return flaw
        if (seal.record_count, seal.flags) != (self._records, self._flags):
            return Flaw.BAD_FIELD
        return None if self._is_next(seal) else Flaw.SEAL_ORDER

    def _is_next(self, seal: Seal) -> bool:
        if self._last is None:
            return seal.sequence == 1 or not self._numbers_from_one
        # Without a header to name the salt, the first group's stands for all: a stale group has another.
        return (seal.sequence, seal.salt) == (self._last.sequence + 1, self._last.salt)


def groups(reader: JournalReader, start: int = 0) -> Iterator[Group | Stop]:
    """The sealed groups from `start` on (0: from the first). The last item says how they ended."""
    watch = GroupWatch(reader, start)
    for item in reader.items(start):
        match item:
            case StoredRecord():
                watch.record(item)
            case StoredPadding():
                found = watch.padding(item)
                if found is not None:
                    yield found
                if isinstance(found, Damaged):
                    return
            case EndOfData() if item.offset != watch.start:
                yield Torn(watch.start, Flaw.SEAL_MISSING)
            case EndOfData() | Torn() | Damaged():
                yield item
