"""The directories of a bookie that has several journals or several ledger directories, as parts.

    part    journal directory N, if there is one, with its mark `lastMark.N`
            ledger directory N, if there is one, with its entry logs and its index

A bookie divides its ledgers over its journals and over its ledger directories by their ids. If it has as
many journals as ledger directories, a part has everything of its ledgers. Otherwise entries of a journal are
in the logs of other parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.directory.layout import Layout
from storage import bookkeeper_conf
from storage.disk import filenames
from storage.disk.posix import PosixDirectory, open_file
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from storage.disk.files import ReadFile

_JOURNALS = ("journalDirectories", "journalDirectory")
_LEDGERS = "ledgerDirectories"
_DEFAULT_JOURNAL, _DEFAULT_LEDGERS = "/tmp/bk-txn", "/tmp/bk-data"  # noqa: S108 - a bookie's own defaults
_CONF_SIZE_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class BookieDirectories:
    """The journal and the ledger directories of one bookie, in the order of its configuration."""

    journals: tuple[str, ...]
    ledgers: tuple[str, ...]

    def parts(self) -> tuple[BookiePart, ...]:
        """Return the parts, each under the path of its ledger directory, or else of its journal."""
        count = max(len(self.journals), len(self.ledgers))
        marks = [
            filenames.LAST_MARK if len(self.journals) == 1 else f"{filenames.LAST_MARK}.{number}"
            for number in range(len(self.journals))
        ]
        return tuple(
            BookiePart(
                path=(self.ledgers[number:] or self.journals[number:])[0],
                journal=next(iter(self.journals[number:]), None),
                # A bookie writes all marks into every ledger directory.
                ledgers=(self.ledgers[number:] or self.ledgers)[0],
                mark=marks[number] if number < len(marks) else "",
                has_logs=number < len(self.ledgers),
                has_all_of_its_ledgers=len(self.journals) == len(self.ledgers),
            )
            for number in range(count)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BookiePart:
    """One journal directory and one ledger directory of a bookie, or only one of the two."""

    path: str
    journal: str | None
    ledgers: str
    mark: str
    has_logs: bool
    has_all_of_its_ledgers: bool


def of_configuration(path: str) -> BookieDirectories:
    """Return the directories that a bookie's configuration file names. Raise `InvalidConfig` or `OSError`."""
    with open_file(path) as file:
        text = file.read(0, _CONF_SIZE_MAX).decode(errors="surrogateescape")
    given = {one.key: one.value for one in bookkeeper_conf.parse(text)}
    journals = next((given[key] for key in _JOURNALS if given.get(key)), _DEFAULT_JOURNAL)
    found = BookieDirectories(_listed(journals), _listed(given.get(_LEDGERS) or _DEFAULT_LEDGERS))
    if not found.journals or not found.ledgers:
        raise InvalidConfig(path, f"no directory in {', '.join((*_JOURNALS, _LEDGERS))}")
    return found


def _listed(value: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in value.split(",") if one.strip())


def check_are_there(directories: BookieDirectories) -> None:
    """Raise `InvalidConfig` for the first directory that no bookie has used."""
    for path in (*directories.journals, *directories.ledgers):
        if not (Path(path) / filenames.CURRENT).is_dir():
            raise InvalidConfig(path, f"no directory of a bookie: it has no {filenames.CURRENT}")


# ── a part as a layout ───────────────────────────────────────────────────────────────────────────────────


def layout_of(part: BookiePart, unreadable: Mapping[str, str]) -> Layout:
    """Return the layout of a part, without the `unreadable` paths."""
    return Layout(_PartRoot(part, unreadable))


class _PartRoot(PosixDirectory):
    """Stands for the directory of a store, with `journal` and `ledgers`. Nothing is created in it."""

    def __init__(self, part: BookiePart, unreadable: Mapping[str, str]) -> None:
        super().__init__(part.ledgers)
        self._part = part
        self._unreadable = unreadable

    def directory(self, name: str) -> PosixDirectory:
        if name == filenames.LEDGER_DIRECTORY:
            return _Outer(_LedgerDirectory(self._part, self._unreadable))
        if name == filenames.JOURNAL_DIRECTORY and self._part.journal is not None:
            return _Outer(_SomeNames(_current(self._part.journal), self._unreadable))
        return _Outer(_NoNames(f"{self.path}/{name}/{filenames.CURRENT}"))


class _Outer(PosixDirectory):
    """A directory of which only the subdirectory `current` is read."""

    def __init__(self, current: PosixDirectory) -> None:
        super().__init__(current.path.rpartition("/")[0])
        self._current = current

    def directory(self, name: str) -> PosixDirectory:
        assert name == filenames.CURRENT, "a bookie has no other directory there"
        return self._current


class _NoNames(PosixDirectory):
    """A directory that a part does not have."""

    def names(self) -> list[str]:
        return []


class _SomeNames(PosixDirectory):
    """A directory without the names that were found unreadable."""

    def __init__(self, path: str | os.PathLike[str], unreadable: Mapping[str, str]) -> None:
        super().__init__(path)
        self._unreadable = unreadable

    def names(self) -> list[str]:
        return [name for name in super().names() if f"{self.path}/{name}" not in self._unreadable]


class _LedgerDirectory(_SomeNames):
    """A ledger directory with the mark of one journal, which has the name that it has in other stores."""

    def __init__(self, part: BookiePart, unreadable: Mapping[str, str]) -> None:
        super().__init__(_current(part.ledgers), unreadable)
        self._part = part

    def names(self) -> list[str]:
        return list(self._shown(super().names()))

    def _shown(self, names: Sequence[str]) -> Iterator[str]:
        for name in names:
            if name == self._part.mark:
                yield filenames.LAST_MARK
            elif name.startswith(filenames.LAST_MARK):
                continue  # of another journal
            elif self._part.has_logs or name == filenames.COOKIE:
                yield name

    def open(self, name: str) -> ReadFile:
        return super().open(self._part.mark if name == filenames.LAST_MARK and self._part.mark else name)


def _current(path: str) -> str:
    return f"{path.rstrip('/')}/{filenames.CURRENT}"
