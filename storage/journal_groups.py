"""The sealed groups that our own journals are made of: each verified by its seal's one checksum."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.codec import blocks
from storage.codec.gathering import Begun, Gathered, Noted, gather
from storage.codec.seal import GroupFlag, Seal, StoredSeal
from storage.journal_reader import StoredPadding, StoredRecord, Summed
from storage.outcome import Damaged, EndOfData, Flaw, Stop, Torn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.codec.digest import Buffer
    from storage.journal_reader import JournalReader
    from storage.journal_stretches import Stretches


class Group(NamedTuple):
    """A sealed group whose checksum holds."""

    start: int
    end: int
    seal: Seal
    record_count: int


class GroupWatch:
    """Judges each seal by itself, by what was seen of its group, and by the seal before it."""

    def __init__(self, reader: JournalReader, start: int = 0) -> None:
        self._reader = reader
        self.last: Seal | None = None
        """That of the group before this one; `None` at the beginning."""
        self.begin(start)

    def begin(self, offset: int) -> None:
        """A group begins here; its number is known only if it is the first of the file."""
        self._numbers_from_one = offset <= self._reader.records_start
        self.last = None
        self._open(max(offset, self._reader.records_start))

    def _open(self, start: int) -> None:
        self.start = start
        self._records = 0
        self._flags = GroupFlag.NONE
        self._summed = Summed(start)
        self.first_record: int | None = None
        """Where the first record stands that no seal has vouched for yet."""

    def reach(self, offset: int) -> None:
        """Sums what was counted one by one, up to here."""
        end, checksum = self._summed
        if end != offset:
            self._summed = Summed(offset, self._reader.checksum(end, offset, checksum))

    def records(self, count: int, block: Buffer) -> None:
        """Counts and sums so many records at once, which stand where the sum has reached."""
        end, checksum = self._summed
        self._summed = Summed(end + len(block), crc32c(block, checksum))
        self._records += count
        if count and self.first_record is None:
            self.first_record = end

    @property
    def begun(self) -> Begun:
        """How far the group has been passed."""
        return Begun(self.start, self._records, self._summed.checksum, self._flags, self.first_record)

    def go_on(self, passed: Gathered, end: int) -> None:
        """Groups were passed, and a part of the next one up to `end`."""
        if passed.groups:
            self.last, _ = passed.groups[-1]
        self.start, self._records, checksum, self._flags, self.first_record = passed.begun
        self._summed = Summed(end, checksum)

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
            self._open(item.end)
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
        self.follow(group)
        return group

    def follow(self, group: Group) -> None:
        """The next group begins behind this one."""
        self.last = group.seal
        self._open(group.end)

    def _flaw(self, stored: StoredSeal, end: int) -> Flaw | None:
        seal = stored.seal
        if seal.group_start != self.start:
            return Flaw.OTHER_PLACE
        flaw = self._reader.seal_flaw(stored, end, self._summed)
        if flaw is Flaw.CHECKSUM:
            # Beside a live writer a part may have been summed before it was all there.
            flaw = self._reader.seal_flaw(stored, end)
        if flaw is not None:
            return flaw
        if (seal.record_count, seal.flags) != (self._records, self._flags):
            return Flaw.BAD_FIELD
        return None if self._is_next(seal) else Flaw.SEAL_ORDER

    def _is_next(self, seal: Seal) -> bool:
        if self.last is None:
            return seal.sequence == 1 or not self._numbers_from_one
        # Without a header to name the salt, the first group's stands for all: a stale group has another.
        return (seal.sequence, seal.salt) == (self.last.sequence + 1, self.last.salt)


def groups(
    reader: JournalReader, start: int = 0, stretches: Stretches | None = None
) -> Iterator[Group | Stop]:
    """The sealed groups from `start` on (0: from the first). The last item says how they ended.

    What they hold is added to `stretches`. Not beside a live writer, then: of a part that was read too early
    it would say what is no longer there.
    """
    walk = _Walk(reader, start) if stretches is None else _GatheringWalk(reader, start, stretches)
    while True:
        yield from walk.plain()
        found = walk.next()
        if found is not None:
            yield found
            if not isinstance(found, Group):
                return


class _Walk:
    """Along a journal, over many records at once: they are framed and summed, what they say is not asked."""

    def __init__(self, reader: JournalReader, start: int) -> None:
        self._reader = reader
        self._watch = GroupWatch(reader, start)
        self._at = self._watch.start

    def plain(self) -> Iterable[Group]:
        """The groups with which nothing is the matter, as far as they are held; passes the records behind."""
        self._watch.reach(self._at)
        # Asked for each time: beside a live writer the window may have been read anew.
        block = self._reader.window.rest(self._at)
        passed = blocks.pass_over(block, self._at, self._last())
        found = [Group(seal.group_start, end, seal, seal.record_count) for seal, end in passed.groups]
        if found:
            self._watch.follow(found[-1])
        self._watch.records(passed.record_count, block[passed.start : passed.end])
        self._at += passed.end
        return found

    def _last(self) -> Seal | None:
        """The seal in front of this place, if the next group begins here."""
        return self._watch.last if self._at == self._watch.start else None

    def next(self) -> Group | Stop | None:
        """Passes the one thing that stands here, whatever it is."""
        item = self._reader.item_at(self._at)
        match item:
            case StoredRecord():
                self._pass_record(item)
            case StoredPadding():
                self._at = item.end
                return self._watch.padding(item)
            case EndOfData() if item.offset != self._watch.start:
                return Torn(self._watch.start, Flaw.SEAL_MISSING)
            case _:
                return item
        self._at = item.end
        return None

    def _pass_record(self, item: StoredRecord) -> None:
        self._watch.record(item)


class _GatheringWalk(_Walk):
    """The same, and notes on the way where the entries of each group lie."""

    def __init__(self, reader: JournalReader, start: int, stretches: Stretches) -> None:
        super().__init__(reader, start)
        self._stretches = stretches

    def plain(self) -> Iterator[Group]:
        self._watch.reach(self._at)
        window = self._reader.window
        # What is held ends somewhere in the middle: all that begins there, in one piece.
        while passed := self._gather(window.rest(self._at)) or self._gather(window.ahead(self._at)):
            for seal, end in passed.groups:
                yield Group(seal.group_start, end, seal, seal.record_count)

    def _gather(self, block: memoryview) -> Gathered | None:
        """`None` if what the block begins with goes on behind it, or is to be looked at by itself."""
        watch, noted = self._watch, Noted([], [])
        passed = gather(block, self._at, watch.last, watch.begun, noted)
        if not passed.end:
            return None
        self._stretches.note(noted, passed)
        self._at += passed.end
        watch.go_on(passed, self._at)
        return passed

    def next(self) -> Group | Stop | None:
        found = super().next()
        if isinstance(found, Group):
            self._stretches.end_group()
        return found

    def _pass_record(self, item: StoredRecord) -> None:
        before = self._watch.begun.checksum
        super()._pass_record(item)
        self._watch.reach(item.end)
        self._stretches.note_one(item, before, self._watch.begun.checksum)
