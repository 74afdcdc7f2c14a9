"""Variants of the little store, each with one mistake that real stores have made."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from little_store import LittleStore, frame, head

if TYPE_CHECKING:
    from storage.disk.files import Directory, WriteFile


class NoSyncBeforeAck(LittleStore):
    def _sync_log(self) -> None:
        pass


class NoDirectorySyncAfterCreate(LittleStore):
    def _sync_names_of_data(self) -> None:
        pass


class NoDirectorySyncAfterRename(LittleStore):
    def _sync_name_of_mark(self) -> None:
        pass


class RenameBeforeSync(LittleStore):
    def _publish(self, name: str, content: bytes) -> WriteFile:
        file = self._create_draft(name)
        file.write(0, [content])
        self._directory.rename(f"{name}.draft", name)
        file.sync()
        return file


class NoSyncOfData(LittleStore):
    """Also stands for a store that takes bytes that it read after a kill for durable, because the table
    contains these."""

    def _publish(self, name: str, content: bytes) -> WriteFile:
        if not name.startswith("table"):
            return super()._publish(name, content)
        file = self._create_draft(name)
        file.write(0, [content])
        self._directory.rename(f"{name}.draft", name)
        return file


class MarkBeforeData(LittleStore):
    def _begin_generation(self) -> None:
        generation = self._next
        self._next += 1
        self._write_mark(generation)
        self._sync_name_of_mark()
        self._write_data(generation)
        self._sync_names_of_data()
        self._remove_all_but(generation)


class MarkInPlace(LittleStore):
    def __init__(self, directory: Directory) -> None:
        self._mark: WriteFile | None = None
        super().__init__(directory)

    def _write_mark(self, generation: int) -> None:
        if self._mark is None:
            self._mark = self._publish("mark", head(generation, 0))
        else:
            self._mark.write(0, [head(generation, 0)])
            self._mark.sync()


class AppendBehindTornTail(LittleStore):
    """Continues at the end of the file after a failed write, which has left half a record there."""

    def _write_to_log(self, framed: bytes) -> None:
        try:
            super()._write_to_log(framed)
        except OSError:
            with self._directory.open(f"log-{self._next - 1}") as log:
                self._log_end = log.size()
            super()._write_to_log(framed)


class CarryTailOver(LittleStore):
    """Copies the old log with its torn tail into the new one, and appends after it."""

    def _recover(self) -> list[bytes]:
        self._old_log = b""
        records = super()._recover()
        return records[: len(records) - len(self._parse_frames(self._old_log))]

    def _read_log(self, generation: int) -> list[bytes]:
        self._old_log = self._read(f"log-{generation}")[len(head(0, 0)) :]
        return super()._read_log(generation)

    def _write_data(self, generation: int) -> None:
        super()._write_data(generation)
        if self._old_log:
            self._write_to_log(self._old_log)
            self._sync_log()
            self.records += self._parse_frames(self._old_log)
            self._old_log = b""


class NoChecksum(LittleStore):
    def _is_right(self, record: bytes, crc: int) -> bool:
        return True


class SyncRetried(LittleStore):
    def _sync_log(self) -> None:
        try:
            super()._sync_log()
        except OSError:
            super()._sync_log()


class SyncErrorSwallowed(LittleStore):
    def _sync_log(self) -> None:
        with suppress(OSError):
            super()._sync_log()


class ShortWriteIgnored(LittleStore):
    def _write_to_log(self, framed: bytes) -> None:
        try:
            super()._write_to_log(framed)
        except OSError:
            self._log_end += len(framed)


class OldRemovedBeforeMark(LittleStore):
    def _begin_generation(self) -> None:
        generation = self._next
        self._next += 1
        self._write_data(generation)
        self._sync_names_of_data()
        self._remove_all_but(generation)
        self._write_mark(generation)
        self._sync_name_of_mark()


class NoLatch(LittleStore):
    """Treats a failed sync as the loss of one record, and appends the next ones after it."""

    def append(self, record: bytes) -> None:
        self._write_to_log(frame(record))
        self._sync_log()
        self.records.append(record)
