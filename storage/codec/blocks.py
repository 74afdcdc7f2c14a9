"""Blocks of a journal, passed over in tight loops: replay reads all of it twice.

Each loop ends at the first thing that has to be looked at: an end, damage, something rare, or the end of the
block. Which of these it is, the record codec and the seal's say; on what lies before they would agree.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.codec import journal, seal
from storage.codec.seal import Seal
from storage.entry import RECORD_SIZE_MAX
from storage.position import LENGTH_WORD_SIZE, JournalPosition

if TYPE_CHECKING:
    from storage.codec.digest import Buffer

SIZE_MAX = LENGTH_WORD_SIZE + RECORD_SIZE_MAX
"""A larger block would have room for a record larger than any that is believed."""

_LENGTH = struct.Struct(">i")
_TWO_LENGTHS = struct.Struct(">ii")
_PREFIX = struct.Struct(">iqq")
_PLAIN = (seal.MAGIC, seal.VERSION, seal.GroupFlag.NONE)


class Entries(NamedTuple):
    """Entries as columns: the two ids of each, and its record, length word included, as a copy."""

    ledger_ids: list[int]
    entry_ids: list[int]
    records: list[bytes]


class Passed(NamedTuple):
    """What a block begins with: whole groups, then records of the next one, `block[start:end]`."""

    groups: list[tuple[Seal, int]]
    """The seal of each, and where it ends in the file."""
    record_count: int
    start: int
    end: int


def count_records(block: Buffer, start: int = 0) -> tuple[int, int]:
    """How many records of any kind stand one behind the other from `start` on; where the last one ends."""
    assert len(block) <= SIZE_MAX, "a block is a piece of a file"
    unpack_from, size, last = _LENGTH.unpack_from, len(block), len(block) - LENGTH_WORD_SIZE
    count = 0
    while start <= last:
        (length,) = unpack_from(block, start)
        end = start + LENGTH_WORD_SIZE + length
        if length < journal.BODY_SIZE_MIN or end > size:
            break
        start = end
        count += 1
    return count, start


def take_entries(block: bytes, start: int, into: Entries) -> int:
    """Adds the entries that stand one behind the other from `start` on, and says where the last one ends."""
    assert len(block) <= SIZE_MAX, "a block is a piece of a file"
    unpack_from, size, last = _PREFIX.unpack_from, len(block), len(block) - _PREFIX.size
    add_ledger_id, add_entry_id = into.ledger_ids.append, into.entry_ids.append
    add_record = into.records.append
    while start <= last:
        length, ledger_id, entry_id = unpack_from(block, start)
        end = start + LENGTH_WORD_SIZE + length
        if length < journal.BODY_SIZE_MIN or end > size or (ledger_id | entry_id) < 0:
            break
        add_ledger_id(ledger_id)
        add_entry_id(entry_id)
        add_record(block[start:end])
        start = end
    return start


def sealed_end(block: Buffer, start: int) -> int | None:
    """Where the padding record at `start` ends if it carries a seal; `None` unless the block holds it all."""
    if len(block) - start < journal.PREFIX_SIZE + seal.SIZE:
        return None
    word, length = _TWO_LENGTHS.unpack_from(block, start)
    end = start + journal.PREFIX_SIZE + length
    if word != journal.PADDING or length < seal.SIZE or end > len(block):
        return None
    return end if block[end - seal.SIZE : end - seal.SIZE + len(seal.MAGIC)] == seal.MAGIC else None


def pass_over(block: Buffer, offset: int, last: Seal | None) -> Passed:
    """Passes over the groups that follow this last one, right behind it at `offset` in the file.

    Plain ones only, and only such that hold: checksum, place and number, and nothing unknown in the seal.
    Without a last one, over none.
    """
    groups: list[tuple[Seal, int]] = []
    start = 0
    count, end = count_records(block)
    while last is not None and (group_end := sealed_end(block, end)) is not None:
        last = _seal_behind(last, block[start:group_end], offset + start, count)
        if last is not None:
            groups.append((last, offset + group_end))
            start = group_end
            count, end = count_records(block, start)
    return Passed(groups, count, start, end)


def _seal_behind(last: Seal, group: Buffer, start: int, count: int) -> Seal | None:
    fields = seal.STORED.unpack_from(group, len(group) - seal.SIZE)
    expected = (*_PLAIN, last.journal_id, last.salt, last.sequence + 1, start)
    checksum = crc32c(group[: -seal.CHECKSUM_SIZE])
    if fields[:7] != expected or fields[9:] != (count, checksum) or min(fields[7:9]) < 0:
        return None
    return Seal(*expected[3:], JournalPosition(*fields[7:9]), count)
