"""The entry logs of a running store, as checkpoints write them: the log in use, and the roll to the next."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.entry.position import LOG_ID_MAX, LogPosition
from storage.entrylog.format import BLOCK_SIZE, Origin
from storage.entrylog.writer import EntryLogWriter

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterable, Sequence

    from storage.disk.files import Directory
    from storage.entry.record_chunk import RecordChunk


class EntryLogs:
    """The entry logs that checkpoints write. One checkpoint at a time may use them."""

    def __init__(self, directory: Directory, store_id: bytes, size_max: int, last_log: int | None) -> None:
        self.last_log = last_log
        self.ends: dict[int, int] = {}
        """The ends of the logs to which the present checkpoint has written."""
        self._directory = directory
        self._store_id = store_id
        self._size_max = size_max
        self._generation = 0
        self._newest: LogPosition | None = None
        """The newest log that counts if this checkpoint succeeds, and its end."""
        self._writer: EntryLogWriter | None = None
        self._begun: list[int] = []
        self._names_are_durable = True

    @property
    def newest_log(self) -> int | None:
        """The log that is the last one if the present checkpoint succeeds.

        It is not always the log that was begun last, because nothing of that log counts if a second attempt
        has nothing to write.
        """
        return None if self._newest is None else self._newest.log_id

    @property
    def in_use(self) -> int | None:
        """The log that the next append goes to if it has room; `None` if that will be a new log."""
        writer = self._writer
        return None if writer is None else writer.log_id

    @property
    def unsynced(self) -> int:
        """Return the bytes that wait for a sync."""
        return 0 if self._writer is None else self._writer.unsynced

    def begin(self, generation: int, newest: LogPosition | None) -> None:
        """Begin the checkpoint that makes this generation of the index, in the log in use or in a new one.

        `newest` is the end of the newest log that the index has committed.
        """
        self.ends = {}
        self._begun = []
        self._generation = generation
        # An attempt that was given up may have written more, but none of that counts.
        self._newest = newest
        if self._writer is not None:
            self._writer.begin()

    def append(self, chunks: Sequence[RecordChunk]) -> list[array[int]]:
        """Write chunks; return the packed locations of each chunk's records, which are all in one log.

        They are durable after `sync`.
        """
        size = sum(one.size for one in chunks)
        if len(chunks) > 1 and self._end + size > self._size_max:
            return [locations for one in chunks for locations in self.append((one,))]
        writer = self._with_room(size)
        locations = writer.write(chunks)
        self.ends[writer.log_id] = writer.end
        self._newest = LogPosition(writer.log_id, writer.end)
        return locations

    @property
    def _end(self) -> int:
        return BLOCK_SIZE if self._writer is None else self._writer.end

    def _with_room(self, size: int) -> EntryLogWriter:
        # A chunk that fits into no log gets a log of its own.
        if self._writer is not None and self._writer.end + size > self._size_max:
            self._writer.sync()
            self.seal()
        if self._writer is None:
            log_id = next_log_id(taken_by(self._directory.names()), self.last_log)
            self._names_are_durable = False
            # The end in its header was synced before the roll, and counts if this log does.
            origin = Origin(self._store_id, self._generation, self._newest)
            self._writer = EntryLogWriter.create(self._directory, log_id, origin)
            self.last_log = log_id
            self._begun.append(log_id)
        return self._writer

    def sync(self) -> None:
        """Make the records durable. The names of the logs are not made durable."""
        if self._writer is not None:
            self._writer.sync()

    def sync_names(self) -> None:
        """Make the names of the logs durable too."""
        if not self._names_are_durable:
            self._directory.sync()
            self._names_are_durable = True

    def abandon(self) -> None:
        """Give up the log in use after an error. The bytes after its durable end are a leftover."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def discard(self) -> None:
        """Give up the logs that this checkpoint has begun, and free their space.

        No location is in them yet.
        """
        self.abandon()
        for log_id in self._begun:
            # A log that cannot be removed is a leftover like any other.
            with suppress(OSError):
                self._directory.remove(filenames.entry_log(log_id))
        self._begun = []

    def seal(self) -> None:
        """End the log in use with a ledgers map.

        A log that gets none is scanned instead, as after a crash.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):  # the writer closes its log after an error too
                writer.seal()


def log_ids(directory: Directory) -> list[int]:
    """Return the ids of the logs that have a name here."""
    names = map(filenames.parse, directory.names())
    return [name.number for name in names if name.kind is FileKind.ENTRY_LOG and name.number is not None]


def age_of(last_log: int) -> Callable[[int], int]:
    """Return the key that sorts logs, and logs that were removed, in the order in which they were written.

    `last_log` is one of them, such as the newest. Ids wrap around, so that the newest is not always the
    largest. A log that was begun after `last_log` sorts after it, because a checkpoint may begin one while a
    collection uses the key.
    """
    circle = LOG_ID_MAX + 1
    return lambda log_id: (log_id - last_log + circle // 2) % circle


# ── ids ──────────────────────────────────────────────────────────────────────────────────────────────────

_COUNT = LOG_ID_MAX
"""Ids go from 0 up to one below this, as a bookie's do, and then from 0 again."""

_TAKING = frozenset({FileKind.ENTRY_LOG, FileKind.COMPACTED_LOG})
"""The ids of drafts, and of logs that are being compacted, are free, because none of their entries counts
yet."""


def taken_by(names: Iterable[str]) -> set[int]:
    """Return the ids that no new log may get, by the names in a directory."""
    parsed = map(filenames.parse, names)
    return {name.number for name in parsed if name.kind in _TAKING and name.number is not None}


def next_log_id(taken: Iterable[int], last: int | None) -> int:
    """Return the id after the newest log's, or after that of the log known to have been written last."""
    ids = sorted({_on_circle(log_id) for log_id in taken})
    log_id = _later(_newest(ids), None if last is None else _on_circle(last))
    log_id = 0 if log_id is None else (log_id + 1) % _COUNT
    occupied = set(ids)
    while log_id in occupied:
        log_id = (log_id + 1) % _COUNT
    return log_id


def _on_circle(log_id: int) -> int:
    return min(log_id, _COUNT - 1)


def _newest(ids: list[int]) -> int | None:
    """Return the id before the largest gap, because after a wrap the newest id is not the largest."""
    if not ids:
        return None
    gaps = zip(ids, [*ids[1:], ids[0] + _COUNT], strict=True)
    return max(gaps, key=lambda gap: gap[1] - gap[0])[0]


def _later(newest: int | None, last: int | None) -> int | None:
    """Return the later one of two ids, because the last log may be gone, and the note of it may be old."""
    if newest is None or last is None:
        return last if newest is None else newest
    return last if (last - newest) % _COUNT < _COUNT // 2 else newest
