"""The writer of an entry log: a header, the records of one checkpoint after the other, then the ledgers map.

├ header, filler ┼ record ┼ record ┼ … ┼ filler ┼ record ┼ … ┼ filler ┼ ledgers map ┤
0                4096                  × 4096                × 4096
"""

from __future__ import annotations

import errno
from array import array
from collections import Counter
from contextlib import contextmanager
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.disk.replace import replacing
from storage.entry.position import LENGTH_WORD_SIZE, EntryLocation
from storage.entrylog import format as entrylog_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.disk.files import Directory, WriteFile
    from storage.entry.record_chunk import RecordChunk
    from storage.entrylog.format import Origin

SIZE_MAX = (1 << 31) - 1
"""The caller rolls before this size, because a bookie keeps offsets in 31 bits."""

_SMALL = 2048
_WRITE_SIZE = 256 << 10


class EntryLogWriter:
    """An entry log from its first record to its map. After an error nothing more is ever written to it.

    For one thread. Nothing is durable until `sync` returns.
    """

    def __init__(self, file: WriteFile, log_id: int) -> None:
        self.log_id = log_id
        self.end = entrylog_format.BLOCK_SIZE
        """The offset of the next byte to be written."""
        self.unsynced = 0
        """Bytes written since the last sync."""
        self._file = file
        self._sizes: Counter[int] = Counter()
        self._is_open = True

    @classmethod
    def create(cls, directory: Directory, log_id: int, origin: Origin) -> EntryLogWriter:
        """Create a log without entries, its header durable.

        Its name is durable after the directory's `sync`.
        """
        name = filenames.entry_log(log_id)
        if name in directory.names():
            raise FileExistsError(errno.EEXIST, "a new entry log needs a new id", f"{directory.path}/{name}")
        # The header is durable before the name, because a log that a crash leaves is removed only if its
        # header says that this store made it.
        with replacing(directory, name) as file:
            header = entrylog_format.encode_header(origin)
            file.write(0, [header, entrylog_format.encode_filler(len(header))])
        return cls(file, log_id)

    def begin(self) -> int:
        """Return the offset of a checkpoint's first record, which is the start of a block."""
        self._fill_block()
        return self.end

    def write(self, chunks: Sequence[RecordChunk]) -> list[array[int]]:
        """Write the chunks one after the other; return the packed locations of each."""
        size = sum(one.size for one in chunks)
        assert self.end + size <= SIZE_MAX, "the caller rolls before a log is full"
        start, found = self.end, []
        self._write([*chain.from_iterable(one.buffers for one in chunks)], size)
        for one in chunks:
            # Includes the end of the last record, which is no location.
            first = EntryLocation(self.log_id, start + LENGTH_WORD_SIZE).pack()
            locations = array("q", accumulate(one.sizes, initial=first))
            locations.pop()
            found.append(locations)
            self._sizes[one.ledger_id] += one.size
            start += one.size
        return found

    def sync(self) -> None:
        """Make everything that was written durable. Its last block is never written again."""
        # The block is filled now and not by the next checkpoint. Writing into this block again, when its
        # entries are committed, could ruin them on a drive that does not write whole sectors.
        self._fill_block()
        with self._writing() as file:
            file.sync()
        self.unsynced = 0

    def seal(self) -> None:
        """End the log with its ledgers map, durably. A log without entries gets none."""
        sizes = self._sizes
        map_offset = self.end
        records = entrylog_format.encode_ledgers_map(sizes)
        self._write(records, sum(map(len, records)))
        with self._writing() as file:
            # The map is durable before the header names it. Otherwise a crash could leave a log that claims
            # to be sealed.
            file.sync()
            if sizes:
                # In any order, because a map without its checksum is only scanned instead of believed.
                file.write(
                    entrylog_format.MAP_CHECKSUM_OFFSET,
                    [entrylog_format.encode_map_checksum(map_offset, records, len(sizes))],
                )
                file.write(
                    entrylog_format.MAP_FIELDS_OFFSET,
                    [entrylog_format.encode_map_fields(map_offset, len(sizes))],
                )
                file.sync()
        self.unsynced = 0
        self.close()

    def close(self) -> None:
        """Close the log as it is. Bytes that were not synced are a leftover after its durable end."""
        self._is_open = False
        self._file.close()

    def _fill_block(self) -> None:
        filler = entrylog_format.encode_filler(self.end)
        self._write([filler], len(filler))

    def _write(self, buffers: Sequence[bytes], size: int) -> None:
        with self._writing() as file:
            at = self.end
            for some in _joined(buffers, size):
                file.write(at, some)
                at += sum(map(len, some))
        self.end += size
        self.unsynced += size

    @contextmanager
    def _writing(self) -> Iterator[WriteFile]:
        assert self._is_open, f"entry log {self.log_id:x} is sealed, given up, or spoiled by an earlier error"
        try:
            yield self._file
        except BaseException:
            # The content of the file is unknown now, and a sync that succeeds later would prove nothing.
            self.close()
            raise


def _joined(buffers: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """Return the buffers in lists for one write each.

    Small buffers are joined, which costs less than writing them.
    """
    if size > _SMALL * len(buffers):
        yield buffers
        return
    count = max(1, _WRITE_SIZE * len(buffers) // max(1, size))
    for start in range(0, len(buffers), count):
        yield (b"".join(buffers[start : start + count]),)
