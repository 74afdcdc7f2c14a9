"""What other processes print meanwhile, kept out of what we show."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STDERR = 2


class Aside:
    """Standard error of this process, and of all that it starts, goes to a file without a name for a while.

    Meanwhile `terminal` is where it went before; afterwards the file can be asked. Close it.
    """

    def __enter__(self) -> Self:
        self.terminal = os.fdopen(os.dup(_STDERR), "w")
        self._file = TemporaryFile()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.terminal.close()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """So it is inside the block."""
        sys.stderr.flush()
        os.dup2(self._file.fileno(), _STDERR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(self.terminal.fileno(), _STDERR)

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
