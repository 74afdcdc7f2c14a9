"""From what a person types to directories and files.

A *current* directory holds the files themselves. A root, ours or a bookie's, has several below it:
`journal/current`, `ledgers/current`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.shell.exits import CannotDo
from storage import filenames
from storage.filenames import FileKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.files import ReadFile

_JOURNALS = (FileKind.JOURNAL, FileKind.JOURNAL_DRAFT)
_LOGS = (
    FileKind.ENTRY_LOG,
    FileKind.ENTRY_LOG_DRAFT,
    FileKind.COMPACTING_LOG,
    FileKind.COMPACTED_LOG,
)
_LEDGERS = (*_LOGS, FileKind.LAST_MARK, FileKind.LAST_ID, FileKind.LEDGER_ROWS)


class Place(NamedTuple):
    """A current directory, and the kinds of files in it."""

    path: Path
    kinds: frozenset[FileKind]

    @property
    def holds_journals(self) -> bool:
        return bool(self.kinds & frozenset(_JOURNALS)) or self._is_called(filenames.JOURNAL_DIRECTORY)

    @property
    def holds_ledgers(self) -> bool:
        return bool(self.kinds & frozenset(_LEDGERS)) or self._is_called(filenames.LEDGER_DIRECTORY)

    def _is_called(self, name: str) -> bool:
        # An empty directory can still be told by its name.
        path = self.path.resolve()
        return path.name == filenames.CURRENT and path.parent.name == name


def current_directories(path: Path) -> list[Place]:
    """The directories of files that a path means: those below it, or itself."""
    if not path.exists():
        raise CannotDo(f"no such directory: {path}")
    if not path.is_dir():
        raise CannotDo(f"not a directory: {path}")
    below = [path / filenames.CURRENT, *sorted(path.glob(f"*/{filenames.CURRENT}"))]
    return [_look(found) for found in below if found.is_dir()] or [_look(path)]


def _look(path: Path) -> Place:
    names = (filenames.parse(entry.name).kind for entry in path.iterdir())
    return Place(path, frozenset(names) - {FileKind.UNKNOWN})


def journal_file(argument: str, directory: str) -> Path:
    """The journal of that path or hexadecimal id."""
    return _file(argument, directory, "journal", filenames.journal)


def log_file(argument: str, directory: str) -> Path:
    """The entry log of that path or hexadecimal id."""
    return _file(argument, directory, "entry log", filenames.entry_log)


def any_file(argument: str, directory: str) -> Path:
    """The file of that path, or of that name somewhere in the store."""
    path = Path(argument)
    if path.exists() or path.name != argument:
        return _regular(path)
    return _only_one(
        [place.path / argument for place in current_directories(Path(directory))], argument, directory
    )


def _file(argument: str, directory: str, what: str, name_of: Callable[[int], str]) -> Path:
    path = Path(argument)
    if path.is_file() or path.name != argument:
        return _regular(path)
    number = _hexadecimal(argument)
    if number is None:
        if path.suffix:
            return any_file(argument, directory)
        raise CannotDo(f"{argument} is neither a file nor the hexadecimal id of {_a(what)}")
    name = name_of(number)
    candidates = [place.path / name for place in current_directories(Path(directory))]
    return _only_one(candidates, f"{what} {argument}", directory)


def _only_one(candidates: list[Path], what: str, directory: str) -> Path:
    found = [path for path in candidates if path.is_file()]
    if not found:
        raise CannotDo(f"no {what} in {directory}")
    if len(found) > 1:
        raise CannotDo(f"{what} is in several directories, name the file: {', '.join(map(str, found))}")
    return found[0]


def _regular(path: Path) -> Path:
    if path.is_dir():
        raise CannotDo(f"{path} is a directory: name a file, or list it with `ledgerstore files`")
    if not path.exists():
        raise CannotDo(f"no such file: {path}")
    if not path.is_file():
        raise CannotDo(f"{path} is no regular file")
    return path


def refuse_the_other_kind(file: ReadFile, magic: bytes, what: str, command: str) -> None:
    """Says so when a journal is taken for an entry log, or the other way round."""
    if file.read(0, len(magic)) == magic:
        raise CannotDo(f"{file.name} is {_a(what)}: use `ledgerstore {command}`")


def _hexadecimal(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
