"""The limit of reading in order: as many bytes by pread in large blocks, and their CRC-32C, by `raw.c`."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

import raw
from work import Work

if TYPE_CHECKING:
    from pathlib import Path

    from result import Figures

BLOCK = 1 << 20
NO_INSTRUCTION = "reading is not held against the raw limit: this processor has no instruction for CRC-32C"
_NS = 1e9


def why_not() -> str:
    """Why it cannot take part here; nothing when it can."""
    return raw.why_not() or ("" if raw.crc_flags() else NO_INSTRUCTION)


class RawScan:
    """A file of the records that an entry log of ours would have. `lanes`: so many sums are made at once."""

    def __init__(self, place: Path, lanes: int, **work: int) -> None:
        self._lanes = lanes
        self._work = Work(**work)
        self._path = place / "raw"
        self._library = ctypes.CDLL(str(raw.library(place.parent.parent)))
        self.sum = 0
        """Of the last scan; with one lane the CRC-32C of the file."""

    def fill(self, entries: int) -> None:
        """The records of so many entries in each ledger."""
        batches = self._work.batches()
        with self._path.open("xb") as file:
            for _ in range(entries * self._work.ledgers // self._work.batch):
                file.writelines(map(raw.group_record, next(batches)))
            file.flush()
            os.fsync(file.fileno())

    def scan(self, entries: int) -> Figures:
        count = entries * self._work.ledgers
        elapsed, found = ctypes.c_uint64(), ctypes.c_uint64()
        error = self._library.raw_scan(
            os.fsencode(self._path),
            ctypes.c_uint64(BLOCK),
            ctypes.c_uint64(self._lanes),
            ctypes.byref(elapsed),
            ctypes.byref(found),
        )
        if error:
            raise OSError(-error, os.strerror(-error))
        self.sum = found.value
        seconds = elapsed.value / _NS
        return {"rate": count / seconds, "us": seconds / count * 1e6, "count": count, "seconds": seconds}

    def close(self) -> None:
        """Nothing is open between two questions."""
