"""The entry logs of a running store, as checkpoints write them: the one in use, and the roll to the next."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage import filenames
from storage.codec.entrylog import BLOCK_SIZE, Origin
from storage.entrylog_writer import EntryLogWriter
from storage.filenames import FileKind
from storage.log_ids import next_log_id, taken_by
from storage.position import LogPosition

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from storage.codec.piece import Piece
    from storage.files import Directory
    from storage.index_state import IndexState


class EntryLogs:
    """Written by one checkpoint at a time."""

    def __init__(self, directory: Directory, store_id: bytes, size_max: int, last_log: int | None) -> None:
        self.last_log = last_log
        self.ends: dict[int, int] = {}
        """Where the logs end that the checkpoint under way has written to."""
        self._directory = directory
        self._store_id = store_id
        self._size_max = size_max
        self._generation = 0
        self._newest: LogPosition | None = None
        """The newest log that counts if this checkpoint ends, and its end."""
        self._writer: EntryLogWriter | None = None
        self._begun: list[int] = []
        self._names_are_durable = True

    @property
    def newest_log(self) -> int | None:
        """The log that is the last one if the checkpoint under way ends.

        Not always the last that was begun: when a second attempt has nothing to write, nothing of it counts.
        """
        return None if self._newest is None else self._newest.log_id

    @property
    def unsynced(self) -> int:
        """Bytes that wait for a sync."""
        return 0 if self._writer is None else self._writer.unsynced

    def begin(self, committed: IndexState) -> None:
        """A checkpoint begins on top of what is committed, in the log in use or in a new one."""
        self.ends = {}
        self._begun = []
        self._generation = committed.generation + 1
        # Not what an attempt that was given up has written: of its logs nothing counts behind this.
        self._newest = committed.log_end
        if self._writer is not None:
            self._writer.begin()

    def append(self, pieces: Sequence[Piece]) -> list[array[int]]:
        """The packed locations of each piece's records, those of one all in one log. Durable after `sync`."""
        size = sum(one.size for one in pieces)
        if len(pieces) > 1 and self._end + size > self._size_max:
            return [locations for one in pieces for locations in self.append((one,))]
        writer = self._with_room(size)
        locations = writer.write(pieces)
        self.ends[writer.log_id] = writer.end
        self._newest = LogPosition(writer.log_id, writer.end)
        return locations

    @property
    def _end(self) -> int:
        return BLOCK_SIZE if self._writer is None else self._writer.end

    def _with_room(self, size: int) -> EntryLogWriter:
        # What fits into no log has one of its own.
        if self._writer is not None and self._writer.end + size > self._size_max:
            self._writer.sync()
            self.seal()
        if self._writer is None:
            log_id = next_log_id(taken_by(self._directory.names()), self.last_log)
            self._names_are_durable = False
            # What it notes was synced before the roll, and counts if this log does: both, or neither.
            origin = Origin(self._store_id, self._generation, self._newest)
            self._writer = EntryLogWriter.create(self._directory, log_id, origin)
            self.last_log = log_id
            self._begun.append(log_id)
        return self._writer

    def sync(self) -> None:
        """When it returns, what was appended is durable; the names of the logs are not."""
        if self._writer is not None:
            self._writer.sync()

    def sync_names(self) -> None:
        """When it returns, the names of the logs are durable too."""
        if not self._names_are_durable:
            self._directory.sync()
            self._names_are_durable = True

    def abandon(self) -> None:
        """The log in use has met an error: what stands behind its durable end is a leftover."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def discard(self) -> None:
        """Gives up the logs that this checkpoint has begun, and their space: no place points there yet."""
        self.abandon()
        for log_id in self._begun:
            # What cannot be removed is a leftover like any other.
            with suppress(OSError):
                self._directory.remove(filenames.entry_log(log_id))
        self._begun = []

    def seal(self) -> None:
        """Ends the log in use with a ledgers map. One that gets none is scanned instead, as after a crash."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):
                writer.seal()
            writer.close()


def log_ids(directory: Directory) -> list[int]:
    """The ids of the logs that have a name here."""
    names = map(filenames.parse, directory.names())
    return [name.number for name in names if name.kind is FileKind.ENTRY_LOG and name.number is not None]
