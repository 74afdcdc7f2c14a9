"""Writing an entry log: a header, the records of one checkpoint after the other, at last the ledgers map.

├ header, filler ┼ record ┼ record ┼ … ┼ filler ┼ record ┼ … ┼ filler ┼ ledgers map ┤
0                4096                  × 4096                × 4096
"""

from __future__ import annotations

import errno
from array import array
from collections import Counter
from contextlib import ExitStack, contextmanager
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from storage import filenames
from storage.codec import entrylog as codec
from storage.codec import piece
from storage.position import LENGTH_WORD_SIZE, EntryLocation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.codec.entrylog import Origin
    from storage.codec.piece import Piece
    from storage.files import Directory, WriteFile

SIZE_MAX = (1 << 31) - 1
"""Whoever appends rolls before this: a bookie keeps offsets in 31 bits."""

_SMALL = 2048
_WRITE_SIZE = 256 << 10


class EntryLogWriter:
    """An entry log from its first record to its map. After an error nothing more is ever written to it.

    For one thread. Nothing is durable until `sync` returns.
    """

    def __init__(self, file: WriteFile, log_id: int) -> None:
        self.log_id = log_id
        self.end = codec.BLOCK_SIZE
        """Where the next byte goes."""
        self.unsynced = 0
        """Bytes written since the last sync."""
        self._file = file
        self._sizes: Counter[int] = Counter()
        self._is_open = True

    @classmethod
    def create(cls, directory: Directory, log_id: int, origin: Origin) -> EntryLogWriter:
        """A log without entries, its header durable. The name is durable after the directory's `sync`."""
        name = filenames.entry_log(log_id)
        draft = filenames.draft(name)
        names = directory.names()
        if name in names:
            raise FileExistsError(errno.EEXIST, "a new entry log needs a new id", f"{directory.path}/{name}")
        if draft in names:
            directory.remove(draft)
        with ExitStack() as unless_named:
            file = directory.create(draft)
            unless_named.callback(file.close)
            header = codec.encode_header(origin)
            file.write(0, [header, codec.encode_filler(len(header))])
            # Before the rename: of a log that a crash leaves behind, the header must say whose it is, or
            # nobody would dare to remove it.
            file.sync()
            directory.rename(draft, name)
            unless_named.pop_all()
        return cls(file, log_id)

    def begin(self) -> int:
        """The place where a checkpoint's first record will stand: the start of a block."""
        self._fill_block()
        return self.end

    def append(self, ledger_id: int, records: Sequence[bytes]) -> list[int]:
        """Writes the records of one ledger behind the end; answers with their packed locations."""
        ids = range(len(records))
        found = self.write([*piece.of_records(ledger_id, ids, records)])
        return [location for locations in found for location in locations]

    def write(self, pieces: Sequence[Piece]) -> list[array[int]]:
        """Writes the pieces one behind the other; answers with the packed locations of each."""
        size = sum(one.size for one in pieces)
        assert self.end + size <= SIZE_MAX, "whoever appends rolls before a log is full"
        start, found = self.end, []
        self._write([*chain.from_iterable(one.buffers for one in pieces)], size)
        for one in pieces:
            # With the end of the last one, which is no place.
            first = EntryLocation(self.log_id, start + LENGTH_WORD_SIZE).pack()
            locations = array("q", accumulate(one.sizes, initial=first))
            locations.pop()
            found.append(locations)
            self._sizes[one.ledger_id] += one.size
            start += one.size
        return found

    def sync(self) -> None:
        """When it returns, everything appended is durable, and its last block is never written again."""
        # Filled now and not by the next checkpoint: writing into this block again, when its entries are
        # committed, could ruin them where a drive does not write whole sectors.
        self._fill_block()
        with self._writing() as file:
            file.sync()
        self.unsynced = 0

    def seal(self) -> None:
        """Ends the log with its ledgers map, durably. A log without entries gets none."""
        sizes = self._sizes
        map_offset = self.end
        records = codec.encode_ledgers_map(sizes)
        self._write(records, sum(map(len, records)))
        with self._writing() as file:
            # The map before the header that names it: or a crash leaves a log that claims to be sealed.
            file.sync()
            if sizes:
                file.write(codec.MAP_FIELDS_OFFSET, [codec.encode_map_fields(map_offset, len(sizes))])
                file.sync()
        self.unsynced = 0
        self.close()

    def close(self) -> None:
        """Gives the log up as it is. What was not synced is a leftover behind its durable end."""
        self._is_open = False
        self._file.close()

    def _fill_block(self) -> None:
        filler = codec.encode_filler(self.end)
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
            # What the file holds is unknown now, and a sync that succeeds later would prove nothing.
            self.close()
            raise


def _joined(buffers: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """The buffers in lists for one write each. Handing small ones to the system costs more than a copy."""
    if size > _SMALL * len(buffers):
        yield buffers
        return
    count = max(1, _WRITE_SIZE * len(buffers) // max(1, size))
    for start in range(0, len(buffers), count):
        yield (b"".join(buffers[start : start + count]),)
