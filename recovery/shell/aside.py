"""What other processes print meanwhile, kept out of what we show."""

from __future__ import annotations

import os
import shutil
import sys
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

_STDERR = 2


class Aside:
    """Standard error of this process, and of all that it starts, goes to a file without a name.

    Inside the block `terminal` is where it went before; behind the block the file can be asked.
    """

    def __init__(self) -> None:
        self.terminal = os.fdopen(os.dup(_STDERR), "w")
        self._file = TemporaryFile()  # noqa: SIM115 - it lives as long as whoever may ask for it

    def __enter__(self) -> Self:
        sys.stderr.flush()
        os.dup2(self._file.fileno(), _STDERR)
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self.terminal.fileno(), _STDERR)
        self.terminal.close()

    def last(self, count: int) -> list[str]:
        """The last lines of it."""
        self._file.seek(0)
        return self._file.read().decode(errors="replace").splitlines()[-count:]

    def keep(self, path: Path) -> bool:
        """Writes it there; if there is nothing, nothing is there."""
        path.unlink(missing_ok=True)
        if not self._file.seek(0, os.SEEK_END):
            return False
        self._file.seek(0)
        with path.open("wb") as kept:
            shutil.copyfileobj(self._file, kept)
        return True
