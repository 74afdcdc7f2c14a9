"""Writing journals: drafts that are filled and synced before they have a name, then groups, one at a time.

The zeros are written before the name appears, never into a file that groups are written to: a sync of the
fill that fails could otherwise take a group's pages with it, and tell only the fill.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage import filenames
from storage.codec import journal as codec
from storage.codec import seal as seal_codec
from storage.codec.seal import GroupFlag, Seal
from storage.position import JournalPosition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.files import Directory, WriteFile

_ATOMIC_MARK_SIZE = len(seal_codec.encode_atomic_mark())
SMALL = 16 << 10
"""A group of up to so many bytes is put together in memory of its own."""

_PAGE = 4096
_PIECE = 352 << 10
"""What is written at once of a large group. Smaller ones cost more than they spare, and so do any in a group
of less than two of these; larger ones, of several megabytes, cost two to four times as much."""

_UNKNOWN = -1

# What a named tuple's own way takes is a call more, and each add makes some.
_new_tuple = tuple.__new__


class Group(NamedTuple):
    """What one leader writes, and makes durable with one sync."""

    buffers: Sequence[bytes]
    """Its records, one behind the other, in as many pieces as it may be."""
    record_count: int
    size: int
    flags: GroupFlag = GroupFlag.NONE

    def space(self, alignment: int, more: int = 0) -> int:
        """The most it takes in a journal with so many bytes more, seal and padding included."""
        size = self.size + more
        return _ATOMIC_MARK_SIZE + size + seal_codec.padding_size(size, alignment) + alignment


NOTHING = Group((), 0, 0)
"""An empty group vouches for the one before it."""


class JournalDraft:
    """A journal without a name: header and zeros, all of it synced."""

    def __init__(self, directory: Directory, journal_id: int, salt: int, alignment: int) -> None:
        self.journal_id = journal_id
        self._directory = directory
        self._salt = salt
        self._alignment = alignment
        self._name = filenames.journal(journal_id)
        draft = filenames.draft(self._name)
        if draft in directory.names():
            directory.remove(draft)
        self._file = directory.create(draft)
        self._start = self.filled_until = seal_codec.first_group_start(alignment)

    @property
    def room(self) -> int:
        return self.filled_until - self._start

    def fill(self, size: int) -> None:
        """Adds zeros; they count when they are durable, with the header that says how far they go."""
        header = codec.Header(codec.VERSION_MAX, self._salt, self.filled_until + size)
        self._file.write(0, [codec.encode_header(header), seal_codec.header_padding(self._alignment)])
        self._file.zero_fill(self.filled_until, size)
        self._file.sync()
        self.filled_until += size

    def writer(self) -> JournalWriter:
        """Writes groups into the draft: what is carried over is durable before the name can be seen."""
        return JournalWriter(self._file, self.journal_id, self._salt, self._alignment, self.filled_until)

    def publish(self) -> None:
        """Gives it its name, durably."""
        self._directory.rename(filenames.draft(self._name), self._name)
        # Before the first acknowledgement: a power cut must not take the name away from acknowledged groups.
        self._directory.sync()

    def abandon(self) -> None:
        self._file.close()


class JournalWriter:
    """A journal with room ahead. After an error nothing more may ever be written to it."""

    def __init__(
        self, file: WriteFile, journal_id: int, salt: int, alignment: int, filled_until: int
    ) -> None:
        self.journal_id = journal_id
        self.end = seal_codec.first_group_start(alignment)
        self.sequence = 0
        self.keyed: dict[int, bytes] = {}
        """The keys that are logged in this file: a bookie skips records of a ledger without one."""
        self._file = file
        self._assembly = BytesIO()
        self._salt = salt
        self._alignment = alignment
        self._filled_until = filled_until
        self.half = filled_until // 2
        """Is the end behind it, the next journal is wanted."""
        self.ample_until = filled_until - 3 * alignment
        """A group that ends before it has room, whatever its padding comes to."""
        self._written_until = self.end
        self.needs_vouching = False
        """Whether the last group holds anything that no later seal vouches for."""

    @property
    def room(self) -> int:
        """Bytes that are zero and durable ahead of the next group."""
        return self._filled_until - self.end

    @property
    def is_half_full(self) -> bool:
        return self.end > self.half

    def has_room(self, group: Group, more: int = 0) -> bool:
        is_ample = self.end + group.size + more <= self.ample_until
        return is_ample or group.space(self._alignment, more) <= self.room

    def write(self, group: Group, durable_up_to: JournalPosition) -> None:
        """Writes the group at the end; not durable, and not part of the journal, until `sync` returns."""
        assert self._written_until == self.end, "no group is written before the one before it is durable"
        _, count, size, flags = group
        sequence = self.sequence + 1
        fields = (self.journal_id, self._salt, sequence, self.end, durable_up_to, count, flags)
        seal = _new_tuple(Seal, fields)
        if size <= SMALL:
            content = seal_codec.join_group(group.buffers, size, seal, self._alignment)
            self._written_until = self.end + len(content)
            self._file.write(self.end, (content,))
        else:
            self._written_until = _UNKNOWN
            self._written_until = self._write_pieces(group, seal)
        self.needs_vouching = count > 0

    def write_one(self, front: bytes, payload: bytes, size: int, durable_up_to: JournalPosition) -> None:
        """As `write`, for a group of one small record in two parts, `size` bytes together; in fewer calls."""
        assert self._written_until == self.end, "no group is written before the one before it is durable"
        place = (self.journal_id, self._salt, self.sequence + 1, self.end)
        content = seal_codec.join_one(front, payload, size, place, durable_up_to, self._alignment)
        self._written_until = self.end + len(content)
        self._file.write(self.end, (content,))
        self.needs_vouching = True

    def _write_pieces(self, group: Group, seal: Seal) -> int:
        """Writes a large group, each piece while the disk has begun on the one before; where it ends."""
        # The same memory for each piece: fresh memory costs more than what is copied into it.
        assembly, at, checksum = self._assembly, self.end, 0
        assembly.seek(0)
        assembly.writelines(seal_codec.begin(seal))
        *pieces, last = _pieces(group)
        for buffers in pieces:
            assembly.writelines(buffers)
            size, checksum = self._write_piece(at, assembly.tell(), checksum)
            at += size
        assembly.writelines(last)
        assembly.write(seal_codec.encode_padding(seal, at - self.end + assembly.tell(), self._alignment))
        end = assembly.tell()
        with assembly.getbuffer() as assembled:
            checksum = crc32c(assembled[:end], checksum)
        assembly.write(seal_codec.encode_checksum(checksum))
        with assembly.getbuffer() as assembled:
            self._file.write(at, (assembled[: end + seal_codec.CHECKSUM_SIZE],))
        return at + end + seal_codec.CHECKSUM_SIZE

    def _write_piece(self, at: int, size: int, checksum: int) -> tuple[int, int]:
        """Writes whole pages of what was assembled, and moves the rest to the front; how much was written,
        and the checksum up to there."""
        # No page twice: the system would have to wait for the first time before it takes the second.
        whole = size - (at + size) % _PAGE
        if whole <= 0:
            return 0, checksum
        with self._assembly.getbuffer() as assembled:
            checksum = crc32c(assembled[:whole], checksum)
            self._file.write(at, (assembled[:whole],))
            rest = bytes(assembled[whole:size])
        self._file.start_writeback(at, whole)
        self._assembly.seek(0)
        self._assembly.write(rest)
        return whole, checksum

    def sync(self) -> JournalPosition:
        """When it returns, the group is durable, and the place behind it is the journal's end."""
        self._file.sync()
        self.end = self._written_until
        self.sequence += 1
        return _new_tuple(JournalPosition, (self.journal_id, self.end))

    def close(self) -> None:
        self._file.close()


def _pieces(group: Group) -> list[Sequence[bytes]]:
    """The group's buffers in lists of about a piece each; at least one."""
    buffers = group.buffers
    if group.size < 2 * _PIECE:
        return [buffers]
    count = -(-len(buffers) * _PIECE // group.size)
    return [buffers[start : start + count] for start in range(0, len(buffers), count)]
