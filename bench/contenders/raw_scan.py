"""The raw limit of sequential reading: `raw.c` reads as many bytes in large blocks and sums their CRC-32C."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from contest.workload import Work

from contenders import raw

if TYPE_CHECKING:
    from pathlib import Path

    from contest.result import Figures

BLOCK = 1 << 20
NO_INSTRUCTION = "reading is not compared with the raw limit: this processor has no CRC-32C instruction"
_NS = 1e9


def why_unavailable() -> str:
    """Return why it cannot take part on this machine, or an empty string."""
    return raw.why_unavailable() or ("" if raw.crc_flags() else NO_INSTRUCTION)


class RawScan:
    """A file with the records of an entry log.

    `lanes` is the number of checksums that are computed at once.
    """

    def __init__(self, place: Path, lanes: int, **work: int) -> None:
        self._lanes = lanes
        self._work = Work(**work)
        self._path = place / "raw"
        self._library = ctypes.CDLL(str(raw.library(place.parent.parent)))
        self.sum = 0
        """Checksum of the last scan. With one lane it is the CRC-32C of the file."""

    def fill(self, entries: int) -> None:
        """Write the records of `entries` entries of each ledger."""
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
        """Do nothing, because no file is open between two requests."""
