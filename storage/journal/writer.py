"""Writing of journals: drafts that are filled and synced before they have a name, then groups, one at a time.

The zeros are written before the name appears, never into a file that groups are written to. Otherwise a
failed sync of the fill could lose pages of a group, and only the filling thread would get the error.
"""

from __future__ import annotations

from io import BytesIO
from traceback import clear_frames
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.disk import filenames
from storage.disk.replace import create_draft, publish_draft
from storage.entry.position import JournalPosition
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.journal.seal import GroupFlag, Seal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.disk.files import Directory, WriteFile

_ATOMIC_MARK_SIZE = len(journal_seal.encode_atomic_mark())
SMALL = 16 << 10
"""A group of up to so many bytes is assembled in new memory."""

_PAGE = 4096
_PIECE = 352 << 10
"""The size of one write of a large group. Smaller writes cost more than they save, and so do any in a group
of less than two of these; larger ones, of several megabytes, cost two to four times as much."""

_UNKNOWN = -1

# The constructor of a named tuple costs one call more, and each add makes several tuples.
_new_tuple = tuple.__new__


class Group(NamedTuple):
    """The records that one leader writes, and makes durable with one sync."""

    buffers: Sequence[bytes]
    """The records one after the other, in any number of buffers."""
    record_count: int
    size: int
    flags: GroupFlag = GroupFlag.NONE

    def space(self, alignment: int, more: int = 0) -> int:
        """Return the most bytes it takes in a journal with `more` bytes, seal and padding included."""
        size = self.size + more
        return _ATOMIC_MARK_SIZE + size + journal_seal.padding_size(size, alignment) + alignment


NOTHING = Group((), 0, 0)
"""An empty group, whose seal proves that the group before it is durable."""


class JournalDraft:
    """A journal without a name: a header and zeros, all synced."""

    def __init__(
        self, directory: Directory, journal_id: int, salt: int, alignment: int, follows: int = 0
    ) -> None:
        """Create the file. `follows` is the newest journal with a durable group; the header names it."""
        self.journal_id = journal_id
        self._follows = follows
        self._directory = directory
        self._salt = salt
        self._alignment = alignment
        self._name = filenames.journal(journal_id)
        self._file = create_draft(directory, self._name)
        self._start = self.filled_until = journal_seal.first_group_start(alignment)

    @property
    def room(self) -> int:
        return self.filled_until - self._start

    def fill(self, size: int) -> None:
        """Add zeros. They count once they are durable, together with the header that says how far they go."""
        header = journal_format.JournalHeader(
            journal_format.VERSION_MAX, self._salt, self.filled_until + size, self._follows
        )
        self._file.write(
            0, [journal_format.encode_header(header), journal_seal.header_padding(self._alignment)]
        )
        self._file.zero_fill(self.filled_until, size)
        self._file.sync()
        self.filled_until += size

    def writer(self) -> JournalWriter:
        """Return a writer into the draft.

        Records that are carried over are so durable before the name can be seen.
        """
        return JournalWriter(self._file, self.journal_id, self._salt, self._alignment, self.filled_until)

    def publish(self) -> None:
        """Give the journal its name, durably.

        No group is acknowledged before, because a power cut could take the name away.
        """
        publish_draft(self._directory, self._name)

    def abandon(self) -> None:
        self._file.close()


class JournalWriter:
    """A journal with room for more groups. After an error nothing more may ever be written to it."""

    def __init__(
        self, file: WriteFile, journal_id: int, salt: int, alignment: int, filled_until: int
    ) -> None:
        self.journal_id = journal_id
        self.end = journal_seal.first_group_start(alignment)
        self.sequence = 0
        self.keyed: dict[int, bytes] = {}
        """The keys that are logged in this file, because a bookie skips the records of a ledger without
        one."""
        self.metadata_tag = 0
        """The tag of the metadata log for each seal: see `storage.journal.seal.metadata_sequence`."""
        self._file = file
        self._assembly = BytesIO()
        self._salt = salt
        self._alignment = alignment
        self._filled_until = filled_until
        self.half = filled_until // 2
        """When the end is after this offset, the next journal is wanted."""
        self.ample_until = filled_until - 3 * alignment
        """A group that ends before this offset has room, however large its padding is."""
        self._written_until = self.end
        self._written_sequence = 0
        self.needs_vouching = False
        """Whether the last group holds anything that no later seal proves durable."""

    @property
    def room(self) -> int:
        """Return the bytes ahead of the next group that are zero and durable."""
        return self._filled_until - self.end

    @property
    def is_half_full(self) -> bool:
        return self.end > self.half

    def has_room(self, group: Group, more: int = 0) -> bool:
        is_ample = self.end + group.size + more <= self.ample_until
        return is_ample or group.space(self._alignment, more) <= self.room

    def write(self, group: Group, durable_up_to: JournalPosition) -> None:
        """Write the group at the end. Until `sync` returns it is not durable, and not part of the journal."""
        assert self._written_until == self.end, "no group is written before the one before it is durable"
        _, count, size, flags = group
        self._written_sequence = sequence = self.sequence + 1
        place = (self.journal_id, self._salt, sequence, self.end)
        fields = (*place, durable_up_to, count, flags, self.metadata_tag)
        seal = _new_tuple(Seal, fields)
        if size <= SMALL:
            content = journal_seal.encode_group(group.buffers, size, seal, self._alignment)
            self._written_until = self.end + len(content)
            self._file.write(self.end, (content,))
        else:
            self._written_until = _UNKNOWN
            try:
                self._written_until = self._write_pieces(group, seal)
            except BaseException as error:
                # The frames of the failed calls hold views of the memory in which the group is put together.
                # The garbage collector cannot close such a BytesIO: Python 3.13 warns, and 3.12.1 crashes.
                clear_frames(error.__traceback__)
                raise
        self.needs_vouching = count > 0

    def write_one(self, front: bytes, payload: bytes, size: int, durable_up_to: JournalPosition) -> None:
        """Do what `write` does for a group of one small record in two parts, in fewer calls.

        `size` is the size of both parts together.
        """
        assert self._written_until == self.end, "no group is written before the one before it is durable"
        self._written_sequence = sequence = self.sequence + 1
        place = (self.journal_id, self._salt, sequence, self.end)
        tag = self.metadata_tag
        content = journal_seal.encode_single(front, payload, size, place, durable_up_to, tag, self._alignment)
        self._written_until = self.end + len(content)
        self._file.write(self.end, (content,))
        self.needs_vouching = True

    def _write_pieces(self, group: Group, seal: Seal) -> int:
        """Write a large group in pieces, each while the disk already writes the one before.

        Return where it ends.
        """
        # Each piece uses the same memory, because new memory costs more than what is copied into it.
        assembly, at, checksum = self._assembly, self.end, 0
        assembly.seek(0)
        assembly.writelines(journal_seal.atomic_prefix(seal))
        *pieces, last = _pieces(group)
        for buffers in pieces:
            assembly.writelines(buffers)
            size, checksum = self._write_piece(at, assembly.tell(), checksum)
            at += size
        assembly.writelines(last)
        assembly.write(journal_seal.encode_padding(seal, at - self.end + assembly.tell(), self._alignment))
        end = assembly.tell()
        with assembly.getbuffer() as assembled:
            checksum = crc32c(assembled[:end], checksum)
        assembly.write(journal_seal.encode_checksum(checksum))
        with assembly.getbuffer() as assembled:
            self._file.write(at, (assembled[: end + journal_seal.CHECKSUM_SIZE],))
        return at + end + journal_seal.CHECKSUM_SIZE

    def _write_piece(self, at: int, size: int, checksum: int) -> tuple[int, int]:
        """Write whole pages of what was assembled, and move the rest to the front.

        Return how much was written, and the checksum up to there.
        """
        # No page is written twice, because the system would have to wait for the first write before the
        # second.
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
        """Make the group durable, and move the journal's end to the position after it.

        It can be repeated if a signal handler has interrupted it, and never after an error.
        """
        self._file.sync()
        self.end, self.sequence = self._written_until, self._written_sequence
        return _new_tuple(JournalPosition, (self.journal_id, self.end))

    def forget_unsynced(self) -> None:
        """Have the next write repeat one that a signal handler has interrupted; never after an error."""
        self._written_until = self.end
        self._assembly = BytesIO()  # because frames of the interrupted write may hold views of the other one

    def close(self) -> None:
        self._file.close()


def _pieces(group: Group) -> list[Sequence[bytes]]:
    """Return the group's buffers in lists of about one piece each; at least one list."""
    buffers = group.buffers
    if group.size < 2 * _PIECE:
        return [buffers]
    count = -(-len(buffers) * _PIECE // group.size)
    return [buffers[start : start + count] for start in range(0, len(buffers), count)]
