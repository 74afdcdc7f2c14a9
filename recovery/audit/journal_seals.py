"""What ends a sealed group that does not hold, and what of it shows why: padding, seal, or one wrong byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crc32c import crc32c

from recovery.audit.one_byte import candidates
from recovery.verify.parts import FlawAt, FlawKind
from storage.codec import journal as codec
from storage.codec import seal as seal_codec
from storage.codec.seal import GroupFlag
from storage.outcome import Flaw
from storage.position import START, JournalPosition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.codec.seal import StoredSeal
    from storage.journal_reader import JournalReader, StoredPadding

_RESERVED = slice(6, 8)
"""Of a seal: zeros."""

_SEARCHED_MAX = 1 << 20

_Suspect = tuple[int, int, int | None, int | None]
"""Where it begins and ends, of which ledger it is, and which entry."""


@dataclass(slots=True)
class PassedGroup:
    """A group that is being passed."""

    start: int
    number: int | None
    """That its seal should have; `None`: not known any more."""
    records: int = 0
    flags: GroupFlag = GroupFlag.NONE
    is_framed: bool = True
    """Whether every record of it was seen."""
    is_explained: bool = False
    """Whether anything was found that makes its checksum fail."""
    unproven: list[_Suspect] = field(default_factory=list)
    """What no digest has proven."""


class SealReader:
    """Looks at the ends of groups in one journal."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader

    def flaws(self, item: StoredPadding, stored: StoredSeal, group: PassedGroup) -> Iterator[FlawAt]:
        """What is wrong with a group that does not hold, beside what was found in its records."""
        seal_start = item.end - seal_codec.SIZE
        if stored.flaw is Flaw.FUTURE_VERSION and self._holds(stored, item.end):
            return
        found = list(self.filling(item.offset + codec.PREFIX_SIZE, seal_start))
        wrong = self._wrong_fields(stored, seal_start, group)
        if wrong:
            told = ", ".join(wrong)
            found.append(FlawAt(FlawKind.RECORD, Flaw.BAD_FIELD, seal_start, item.end, detail=told))
        yield from found
        if group.is_explained:
            return
        if found and not self._would_hold(item, stored, group):
            yield FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, group.start, item.end)
        elif not found and not self._holds(stored, item.end):
            yield self._somewhere(stored, item.end, group)

    def _would_hold(self, item: StoredPadding, stored: StoredSeal, group: PassedGroup) -> bool:
        """Whether the checksum matches once padding and seal are what is due: then all else is sound.

        What was known to be durable is due from nobody else.
        """
        seal, reader = stored.seal, self._reader
        if not self._is_possible(seal.durable_up_to, item.end - seal_codec.SIZE):
            return True
        due = seal._replace(
            journal_id=reader.journal_id,
            salt=seal.salt if reader.salt is None else reader.salt,
            sequence=seal.sequence if group.number is None else group.number,
            group_start=group.start,
            record_count=group.records,
            flags=group.flags,
        )
        size = item.offset - group.start
        encoded = seal_codec.encode_padding(due, size, min(seal_codec.ALIGNMENTS))
        padding = encoded[seal_codec.CHECKSUM_SIZE - seal_codec.SIZE :]
        start = item.offset + codec.PREFIX_SIZE
        zeros = bytes(item.end - seal_codec.SIZE - start)
        return crc32c(zeros + padding, reader.checksum(group.start, start)) == stored.checksum

    def _is_possible(self, durable_up_to: JournalPosition, end: int) -> bool:
        return START <= durable_up_to <= JournalPosition(self._reader.journal_id, end)

    def _somewhere(self, stored: StoredSeal, end: int, group: PassedGroup) -> FlawAt:
        """A flaw where all that a digest protects is sound, and neither padding nor seal shows anything."""
        seal_start = end - seal_codec.SIZE
        if not group.unproven:
            return FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, seal_start, end)
        suspects: list[_Suspect] = [*group.unproven, (seal_start, end, None, None)]
        places = self._wrong_bytes(stored, end, group.start)
        hit = {one: place for place in places for one in suspects if one[0] <= place < one[1]}
        if len(hit) == 1:
            (((start, behind, ledger_id, entry_id), place),) = hit.items()
            told = f"byte {place}"
            return FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, start, behind, ledger_id, entry_id, told)
        return FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, group.start, end)

    def _wrong_bytes(self, stored: StoredSeal, end: int, start: int) -> list[int]:
        """Where one wrong byte would explain the checksum."""
        behind = end - seal_codec.CHECKSUM_SIZE
        if behind - start > _SEARCHED_MAX:
            return []
        found = self._reader.checksum(start, behind)
        places = [start + place for place in candidates(stored.checksum, found, behind - start)]
        wrong = (stored.checksum ^ found).to_bytes(seal_codec.CHECKSUM_SIZE)
        in_itself = [behind + place for place, byte in enumerate(wrong) if byte]
        return places + (in_itself if len(in_itself) == 1 else [])

    def _holds(self, stored: StoredSeal, end: int) -> bool:
        start = stored.seal.group_start
        if not self._reader.records_start <= start <= end - seal_codec.SIZE:
            return False
        return self._reader.checksum(start, end - seal_codec.CHECKSUM_SIZE) == stored.checksum

    def filling(self, start: int, end: int) -> Iterator[FlawAt]:
        """What is not zero in front of a seal."""
        content = bytes(self._reader.window.view(start, max(0, end - start)))
        wrong = content.strip(b"\0")
        if wrong:
            first = start + len(content) - len(content.lstrip(b"\0"))
            yield FlawAt(FlawKind.RECORD, Flaw.NOT_ZERO, first, first + len(wrong), detail="padding")

    def _wrong_fields(self, stored: StoredSeal, start: int, group: PassedGroup) -> list[str]:
        """The fields of the seal at `start` that cannot be what was written there."""
        seal, reader = stored.seal, self._reader
        due: list[tuple[str, object, object]] = [
            ("version", stored.version, seal_codec.VERSION),
            ("journal", seal.journal_id, reader.journal_id),
            ("reserved", bytes(reader.window.peek(start, _RESERVED.stop)[_RESERVED]), bytes(2)),
        ]
        if reader.salt is not None:
            due.append(("salt", seal.salt, reader.salt))
        if group.number is not None:
            due.append(("number", seal.sequence, group.number))
        if group.is_framed:
            due += [("start", seal.group_start, group.start), ("flags", seal.flags, group.flags)]
            due.append(("records", seal.record_count, group.records))
        elif not group.start <= seal.group_start <= start:
            due.append(("start", seal.group_start, group.start))
        told = [f"{name} {found}, due is {value}" for name, found, value in due if found != value]
        if not self._is_possible(seal.durable_up_to, start):
            told.append(f"durable up to {seal.durable_up_to}")
        return told
