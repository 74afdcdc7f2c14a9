"""Finds directories and files from what the user types.

A *current* directory holds the files. The root of a store or of a bookie has several current directories in
it: `journal/current`, `ledgers/current`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.directory.local_paths import NotLocal, local_paths
from recovery.shell.exit_codes import CannotDo
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import is_locked_elsewhere
from storage.entrylog import format as entrylog_format
from storage.journal import format as journal_format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from storage.disk.files import ReadFile

_JOURNALS = (FileKind.JOURNAL, FileKind.JOURNAL_DRAFT)
_LOGS = (
    FileKind.ENTRY_LOG,
    FileKind.ENTRY_LOG_DRAFT,
    FileKind.COMPACTING_LOG,
    FileKind.COMPACTED_LOG,
)
_LEDGERS = (*_LOGS, FileKind.LAST_MARK, FileKind.LAST_ID, FileKind.LEDGER_ROWS)


class _ListedKind(NamedTuple):
    """A kind of file that a command lists."""

    noun: str
    command: str
    name: str
    magic: bytes
    kinds: tuple[FileKind, ...]


_JOURNAL = _ListedKind("journal", "journal", filenames.journal(0x1F), journal_format.MAGIC, _JOURNALS)
_LOG = _ListedKind("entry log", "log", filenames.entry_log(0x1F), entrylog_format.MAGIC, _LOGS)
_MAGIC_SIZE = 4


def is_in_use(path: Path) -> bool:
    """Return whether another process has the store at the path open."""
    locks = path.glob(f"*/{filenames.CURRENT}/{filenames.INDEX}/{filenames.INDEX_LOCK}")
    return any(map(is_locked_elsewhere, locks))


def given_paths(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that the arguments stand for. Refuse a URI of an object store before any work."""
    try:
        return tuple(path for text in texts for path in local_paths(text))
    except NotLocal as error:
        raise CannotDo(str(error)) from None


class CurrentDirectory(NamedTuple):
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
        # An empty directory is recognised by its name.
        path = self.path.resolve()
        return path.name == filenames.CURRENT and path.parent.name == name


def current_directories(path: Path) -> list[CurrentDirectory]:
    """Return the current directories in `path`, or `path` itself if there is none."""
    if not path.exists():
        raise CannotDo(f"no such directory: {path}")
    if not path.is_dir():
        raise CannotDo(f"not a directory: {path}")
    below = [path / filenames.CURRENT, *sorted(path.glob(f"*/{filenames.CURRENT}"))]
    return [_directory_at(found) for found in below if found.is_dir()] or [_directory_at(path)]


def _directory_at(path: Path) -> CurrentDirectory:
    names = (filenames.parse(entry.name).kind for entry in path.iterdir())
    return CurrentDirectory(path, frozenset(names) - {FileKind.UNKNOWN})


def journal_file(argument: str, directory: str) -> Path:
    """Return the path of a journal that is named by its path or hexadecimal id."""
    return _file(argument, directory, "journal", filenames.journal)


def log_file(argument: str, directory: str) -> Path:
    """Return the path of an entry log that is named by its path or hexadecimal id."""
    return _file(argument, directory, "entry log", filenames.entry_log)


def any_file(argument: str, directory: str) -> Path:
    """Return the path of a file that is named by its path, or by its name if it is in the store."""
    path = Path(argument)
    if path.exists() or path.name != argument:
        return _regular_file(path)
    return _single_match(
        [place.path / argument for place in current_directories(Path(directory))], argument, directory
    )


def _file(argument: str, directory: str, what: str, name_of: Callable[[int], str]) -> Path:
    path = Path(argument)
    if path.is_file() or path.name != argument:
        return _regular_file(path)
    number = _hexadecimal(argument)
    if number is None:
        if path.suffix:
            return any_file(argument, directory)
        raise CannotDo(f"{argument} is neither a file nor the hexadecimal id of {_a(what)}")
    name = name_of(number)
    candidates = [place.path / name for place in current_directories(Path(directory))]
    return _single_match(candidates, f"{what} {argument}", directory)


def _single_match(candidates: list[Path], what: str, directory: str) -> Path:
    found = [path for path in candidates if path.is_file()]
    if not found:
        raise CannotDo(f"no {what} in {directory}")
    if len(found) > 1:
        raise CannotDo(
            f"{what} is in several directories; give the path of one file: {', '.join(map(str, found))}"
        )
    return found[0]


def _regular_file(path: Path) -> Path:
    if path.is_dir():
        raise CannotDo(f"{path} is a directory: give a file, or list the directory with `ledgerstore files`")
    if not path.exists():
        raise CannotDo(f"no such file: {path}")
    if not path.is_file():
        raise CannotDo(f"{path} is not a regular file")
    return path


def check_is_journal(path: Path, file: ReadFile) -> None:
    """Raise an error if neither the first bytes nor the name of the file are those of a journal."""
    _check_kind(path, file, _JOURNAL, _LOG)


def check_is_log(path: Path, file: ReadFile) -> None:
    """Raise an error if neither the first bytes nor the name of the file are those of an entry log."""
    _check_kind(path, file, _LOG, _JOURNAL)


def _check_kind(path: Path, file: ReadFile, expected: _ListedKind, other: _ListedKind) -> None:
    magic = file.read(0, _MAGIC_SIZE)
    if magic == other.magic:
        raise CannotDo(f"{file.name} is {_a(other.noun)}: use `ledgerstore {other.command}`")
    # The magic is missing. The header may be damaged or not written yet, so the name decides.
    if magic != expected.magic and filenames.parse(path.name).kind not in expected.kinds:
        why = f"neither its first bytes nor its name are those of one (such as {expected.name})"
        raise CannotDo(f"{path} is not {_a(expected.noun)}: {why}")


def _hexadecimal(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def check_exists(path: str) -> None:
    if not Path(path).exists():
        raise CannotDo(f"no such file or directory: {path}")


def size_of(paths: Iterable[str]) -> int:
    """Return the total size of all files in the directories, as far as they can be read."""
    return sum(one.stat().st_size for path in paths for one in Path(path).rglob("*") if one.is_file())
