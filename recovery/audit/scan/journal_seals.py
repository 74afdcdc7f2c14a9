"""The end of a sealed group that is not valid: find the cause in padding, seal, or one wrong byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from crc32c import crc32c

from recovery.audit.model.scan_results import FlawAt, FlawKind
from storage.entry.position import START, JournalPosition
from storage.entry.read_result import Flaw
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.journal.seal import GroupFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.journal.reader import JournalReader, StoredPadding
    from storage.journal.seal import StoredSeal

_SEARCHED_MAX = 1 << 20
_TOP = 24

_UnprovenRecord = tuple[int, int, int | None, int | None]
"""Its begin, its end, its ledger, and its entry."""


@dataclass(slots=True)
class GroupInProgress:
    """The group that is being read."""

    start: int
    number: int | None
    """The number that its seal should have; `None` if it is unknown."""
    records: int = 0
    flags: GroupFlag = GroupFlag.NONE
    is_framed: bool = True
    """Whether every record of the group was read."""
    is_explained: bool = False
    """Whether something was found that explains a wrong checksum."""
    unproven: list[_UnprovenRecord] = field(default_factory=list)
    """Records that no digest proves."""


class SealReader:
    """Reads the ends of groups in one journal."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader

    def flaws(self, item: StoredPadding, stored: StoredSeal, group: GroupInProgress) -> Iterator[FlawAt]:
        """Yield what is wrong with an invalid group, besides the flaws of its records."""
        seal_start = item.end - journal_seal.SIZE
        if stored.flaw is Flaw.FUTURE_VERSION and self._holds(stored, item.end):
            return
        found = list(self.filling(item.offset + journal_format.PREFIX_SIZE, seal_start))
        wrong = self._wrong_fields(stored, seal_start, group)
        if wrong:
            details = ", ".join(wrong)
            found.append(FlawAt(FlawKind.RECORD, Flaw.BAD_FIELD, seal_start, item.end, detail=details))
        yield from found
        if group.is_explained:
            return
        if found and not self._would_hold(item, stored, group):
            yield FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, group.start, item.end)
        elif not found and not self._holds(stored, item.end):
            yield self._somewhere(stored, item.end, group)

    def _would_hold(self, item: StoredPadding, stored: StoredSeal, group: GroupInProgress) -> bool:
        """Return whether the checksum would match with the expected padding and seal: then everything else is
        sound.

        The field `durable_up_to` is taken from the seal, because nothing else contains it.
        """
        seal, reader = stored.seal, self._reader
        if not self._is_possible(seal.durable_up_to, item.end - journal_seal.SIZE):
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
        encoded = journal_seal.encode_padding(due, size, min(journal_seal.ALIGNMENTS))
        padding = encoded[journal_seal.CHECKSUM_SIZE - journal_seal.SIZE :]
        start = item.offset + journal_format.PREFIX_SIZE
        zeros = bytes(item.end - journal_seal.SIZE - start)
        return crc32c(zeros + padding, reader.checksum(group.start, start)) == stored.checksum

    def _is_possible(self, durable_up_to: JournalPosition, end: int) -> bool:
        return START <= durable_up_to <= JournalPosition(self._reader.journal_id, end)

    def _somewhere(self, stored: StoredSeal, end: int, group: GroupInProgress) -> FlawAt:
        """Return the flaw if all data with digests is sound, and neither padding nor seal shows anything."""
        seal_start = end - journal_seal.SIZE
        if not group.unproven:
            return FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, seal_start, end)
        suspects: list[_UnprovenRecord] = [*group.unproven, (seal_start, end, None, None)]
        places = self._wrong_bytes(stored, end, group.start)
        hit = {one: place for place in places for one in suspects if one[0] <= place < one[1]}
        if len(hit) == 1:
            (((start, after, ledger_id, entry_id), place),) = hit.items()
            details = f"byte {place}"
            return FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, start, after, ledger_id, entry_id, details)
        return FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, group.start, end)

    def _wrong_bytes(self, stored: StoredSeal, end: int, start: int) -> list[int]:
        """Return the offsets at which one wrong byte would explain the checksum."""
        after = end - journal_seal.CHECKSUM_SIZE
        if after - start > _SEARCHED_MAX:
            return []
        found = self._reader.checksum(start, after)
        places = [start + place for place in single_wrong_bytes(stored.checksum, found, after - start)]
        wrong = (stored.checksum ^ found).to_bytes(journal_seal.CHECKSUM_SIZE)
        in_itself = [after + place for place, byte in enumerate(wrong) if byte]
        return places + (in_itself if len(in_itself) == 1 else [])

    def _holds(self, stored: StoredSeal, end: int) -> bool:
        start = stored.seal.group_start
        if not self._reader.records_start <= start <= end - journal_seal.SIZE:
            return False
        return self._reader.checksum(start, end - journal_seal.CHECKSUM_SIZE) == stored.checksum

    def filling(self, start: int, end: int) -> Iterator[FlawAt]:
        """Yield what is not zero before a seal."""
        content = bytes(self._reader.window.view(start, max(0, end - start)))
        wrong = content.strip(b"\0")
        if wrong:
            first = start + len(content) - len(content.lstrip(b"\0"))
            yield FlawAt(FlawKind.RECORD, Flaw.NOT_ZERO, first, first + len(wrong), detail="padding")

    def _wrong_fields(self, stored: StoredSeal, start: int, group: GroupInProgress) -> list[str]:
        """Return the fields of the seal at `start` that are not what was written."""
        seal, reader = stored.seal, self._reader
        due: list[tuple[str, object, object]] = [
            ("version", stored.version, journal_seal.VERSION),
            ("journal", seal.journal_id, reader.journal_id),
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
        details = [f"{name} {found}, expected {value}" for name, found, value in due if found != value]
        if not self._is_possible(seal.durable_up_to, start):
            details.append(f"durable up to {seal.durable_up_to}")
        return details


# ── one wrong byte ───────────────────────────────────────────────────────────────────────────────────────
# CRC is linear, and its update by further bytes can be undone. The difference between the expected and the
# found checksum, run backwards, becomes at the damaged byte the difference that this byte alone makes.


@cache
def _differences() -> tuple[int, ...]:
    """Return for each difference of one byte the difference of the checksum right after it."""
    nothing = crc32c(b"\0")
    return tuple(crc32c(bytes((value,))) ^ nothing for value in range(256))


@cache
def _by_top_byte() -> tuple[int, ...]:
    tops = {difference >> _TOP: value for value, difference in enumerate(_differences())}
    return tuple(tops[top] for top in range(256))


def single_wrong_bytes(due: int, found: int, size: int) -> list[int]:
    """Return the offsets in `size` bytes at which one wrong byte explains the checksum: often none, hardly
    ever two.
    """
    differences, values = _differences(), _by_top_byte()
    of_one_byte = frozenset(differences[1:])
    difference, places = due ^ found, []
    for place in range(size - 1, -1, -1):
        if difference in of_one_byte:
            places.append(place)
        value = values[difference >> _TOP]
        difference = ((difference ^ differences[value]) << 8 | value) & 0xFFFF_FFFF
    return places
