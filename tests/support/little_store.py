"""A store small enough to read at a glance, with all rules of append and rename.

Generation g consists of `table-g`, the records known when it began; `log-g`, the records appended since;
and the `mark`, which names g. Each step that orders two durable facts is a method of its own, so that a
test can plant a mistake by overriding one method."""

from __future__ import annotations

import struct
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.disk.files import Directory, WriteFile

_FRAME = struct.Struct(">II")
_HEAD = struct.Struct(">I4sQI")  # CRC of the following bytes, magic, generation, count
_MAGIC = b"LITL"


class LittleStoreFailed(Exception):
    """An earlier error has closed this store for writing."""


class Contradiction(Exception):
    """Durable files contradict each other."""


class LittleStore:
    """Records in the order in which they were appended. `records` is the content for readers."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._failed = False
        self._log: WriteFile | None = None
        self._log_end = 0
        self._lock = directory.lock("lock")
        try:
            self.records = self._recover()
            self._begin_generation()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._lock.close()

    def append(self, record: bytes) -> None:
        """Append a record durably."""
        with self._latching():
            self._write_to_log(frame(record))
            self._sync_log()
            self.records.append(record)

    def checkpoint(self) -> None:
        """Move all records into a table, and begin an empty log."""
        with self._latching():
            self._begin_generation()

    @contextmanager
    def _latching(self) -> Iterator[None]:
        if self._failed:
            raise LittleStoreFailed
        try:
            yield
        except OSError:
            # The file's content is unknown now, because a second sync may succeed for bytes that the kernel
            # dropped.
            self._failed = True
            raise

    # --- appending ------------------------------------------------------------------------------------

    @property
    def _open_log(self) -> WriteFile:
        if self._log is None:
            raise LittleStoreFailed
        return self._log

    def _write_to_log(self, framed: bytes) -> None:
        self._open_log.write(self._log_end, [framed[: _FRAME.size], framed[_FRAME.size :]])
        self._log_end += len(framed)

    def _sync_log(self) -> None:
        self._open_log.sync()

    # --- a new generation -----------------------------------------------------------------------------

    def _begin_generation(self) -> None:
        generation = self._next
        self._next += 1
        self._write_data(generation)
        self._sync_names_of_data()
        self._write_mark(generation)
        self._sync_name_of_mark()
        self._remove_all_but(generation)

    def _write_data(self, generation: int) -> None:
        self._publish(
            f"table-{generation}", head(generation, len(self.records)) + b"".join(map(frame, self.records))
        ).close()
        old = self._log
        self._log = self._publish(f"log-{generation}", head(generation, 0))
        self._log_end = _HEAD.size
        if old is not None:
            old.close()

    def _write_mark(self, generation: int) -> None:
        self._publish("mark", head(generation, 0)).close()

    def _sync_names_of_data(self) -> None:
        self._directory.sync()  # before the mark: it must not name what a power cut can take away

    def _sync_name_of_mark(self) -> None:
        self._directory.sync()  # before the first record of this log is acknowledged, or anything removed

    def _publish(self, name: str, content: bytes) -> WriteFile:
        file = self._create_draft(name)
        file.write(0, [content])
        file.sync()  # before the rename: a durable name must never precede durable content
        self._directory.rename(f"{name}.draft", name)
        return file

    def _create_draft(self, name: str) -> WriteFile:
        draft = f"{name}.draft"
        if draft in self._directory.names():
            self._directory.remove(draft)
        return self._directory.create(draft)

    def _remove_all_but(self, generation: int) -> None:
        keep = {"lock", "mark", f"table-{generation}", f"log-{generation}"}
        for name in self._directory.names():
            if name not in keep:
                self._directory.remove(name)

    # --- recovery -------------------------------------------------------------------------------------

    def _recover(self) -> list[bytes]:
        self._directory.sync()  # the names read next may be unsynced ones of a killed process
        names = self._directory.names()
        self._next = 1 + max((_number(name) for name in names), default=0)
        if "mark" not in names:
            return []
        generation, _ = self._parse_head("mark", self._read("mark"))
        self._next = max(self._next, generation + 1)
        return self._read_table(generation) + self._read_log(generation)

    def _read_table(self, generation: int) -> list[bytes]:
        content = self._read(f"table-{generation}")
        _, count = self._parse_head("table", content)
        records = self._parse_frames(content[_HEAD.size :])
        if len(records) != count:
            raise Contradiction(f"table {generation} has {len(records)} of {count} records")
        return records

    def _read_log(self, generation: int) -> list[bytes]:
        content = self._read(f"log-{generation}")
        self._parse_head("log", content)
        return self._parse_frames(content[_HEAD.size :])

    def _read(self, name: str) -> bytes:
        with self._directory.open(name) as file:
            return file.read(0, file.size())

    def _parse_head(self, name: str, content: bytes) -> tuple[int, int]:
        if len(content) < _HEAD.size:
            raise Contradiction(f"{name} is short")
        crc, magic, generation, count = _HEAD.unpack_from(content)
        if magic != _MAGIC or crc != zlib.crc32(content[4 : _HEAD.size]):
            raise Contradiction(f"{name} has a bad head")
        return generation, count

    def _parse_frames(self, content: bytes) -> list[bytes]:
        """Return the records before the torn tail, which begins at the first incomplete record."""
        records, offset = [], 0
        while offset + _FRAME.size <= len(content):
            size, crc = _FRAME.unpack_from(content, offset)
            record = content[offset + _FRAME.size : offset + _FRAME.size + size]
            if not size or len(record) < size or not self._is_right(record, crc):
                break
            records.append(record)
            offset += _FRAME.size + size
        return records

    def _is_right(self, record: bytes, crc: int) -> bool:
        return zlib.crc32(record) == crc


def frame(record: bytes) -> bytes:
    return _FRAME.pack(len(record), zlib.crc32(record)) + record


def head(generation: int, count: int) -> bytes:
    rest = _HEAD.pack(0, _MAGIC, generation, count)[4:]
    return zlib.crc32(rest).to_bytes(4, "big") + rest


def _number(name: str) -> int:
    digits = name.removesuffix(".draft").rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0
