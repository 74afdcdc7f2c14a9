"""What verifying needs beside the store itself: packages that are there or not, and how fast is wanted."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.shell.exits import CannotDo

if TYPE_CHECKING:
    from collections.abc import Iterable

_LARGE = 512 << 20
"""Below it one process is done before others would have begun."""


def check_there_is(command: str, extra: str, *packages: str) -> None:
    """Refuses with one line that says what to install."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        names = " and ".join(missing)
        raise CannotDo(f"{command} needs {names}: pip install 'ledgerstore[{extra}]'")


def check_is_there(path: str) -> None:
    if not Path(path).exists():
        raise CannotDo(f"no such file or directory: {path}")


def size_of(paths: Iterable[str]) -> int:
    """Bytes of all files below the paths, as far as they can be seen."""
    return sum(one.stat().st_size for path in paths for one in Path(path).rglob("*") if one.is_file())


def jobs_for(size: int, wanted: int | None) -> int:
    """How many processes: as many as are wanted, else those that there are where it pays."""
    from recovery.audit.local import processors

    return wanted or (processors() if size >= _LARGE else 1)
