"""The floor: the same bytes by the same system calls, and nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from storage.codec import record, seal
from storage.codec.seal import GroupFlag, Seal
from storage.position import JournalPosition

if TYPE_CHECKING:
    from pathlib import Path

ALIGNMENT = 4096
_STEP = bytes(1 << 20)


class RawFile:
    """A file that was filled with zeros and synced, as a journal is; written over from its start again."""

    def __init__(self, path: Path, size: int) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._size = size
        self._end = 0
        for offset in range(0, size, len(_STEP)):
            os.pwrite(self._descriptor, _STEP, offset)
        os.fsync(self._descriptor)

    def append(self, data: bytes) -> None:
        """Returns when the data is durable."""
        if self._end + len(data) > self._size:
            self._end = 0
        os.pwrite(self._descriptor, data, self._end)
        os.fdatasync(self._descriptor)
        self._end += len(data)

    def close(self) -> None:
        os.close(self._descriptor)


def group(count: int, payload: bytes) -> bytes:
    """What the journal of a store is given for so many entries added at once."""
    records = [record.encode_front(1, entry, entry - 1, 0, payload) + payload for entry in range(count)]
    flags = GroupFlag.ATOMIC if count > 1 else GroupFlag.NONE
    one = Seal(1, 0, 1, ALIGNMENT, JournalPosition(1, ALIGNMENT), count, flags)
    return b"".join(seal.encode_group(records, one, ALIGNMENT))
