"""One picture of a store that another process may be writing to.

    mark       everything before it is in logs and index
    links      journals and logs that are there: nothing that is linked can be taken away
    index      copied once, by LMDB's own rules, after its pages were verified
    links      once more: what the copy names and was made meanwhile

A journal or a log that was made and taken away between the two makes all of it begin again. Of a store that
nobody has open nothing is linked, and nothing is written into its directory.
"""

from __future__ import annotations

import errno
import shutil
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit import index_copy
from recovery.audit.links import make_links, remove_stale
from storage import filenames, lastmark
from storage.codec.mark import Mark
from storage.filenames import FileKind
from storage.lmdb_index import LmdbIndex
from storage.lmdb_place import LmdbPlace, open_copy
from storage.outcome import Damaged, Flaw
from storage.posix_files import is_locked_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.audit.links import Links
    from recovery.founding import Layout
    from storage.files import Directory
    from storage.index import NoIndex
    from storage.index_state import IndexState
    from storage.lastmark import LoadedMark
    from storage.position import JournalPosition
    from storage.row import LedgerRow

_ATTEMPTS = 5
_COPIES_MAX = 10
_BOOKIE_LOCKS = ("ledgers/LOCK", "locations/LOCK")
"""What a bookie that runs has locked, if it keeps its index in RocksDB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A store that is held still."""

    is_live: bool
    mark: LoadedMark
    index: Path | NoIndex | Damaged
    """The directory in which a copy lies."""
    state: IndexState | None = None
    """What the copy says, and the rows in it."""
    rows: Mapping[int, LedgerRow] = field(default_factory=dict)
    log_ids: tuple[int, ...] = ()
    journal_ids: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    """What is not covered, and why."""
    paths: Mapping[str, Path] = field(default_factory=dict)

    def log_path(self, log_id: int) -> Path:
        return self.paths[filenames.entry_log(log_id)]

    def journal_path(self, journal_id: int) -> Path:
        return self.paths[filenames.journal(journal_id)]


@contextmanager
def hold(layout: Layout, into: Path) -> Iterator[Held]:
    """Holds the store still as long as the `with` lasts; `into` is an empty directory for the copy."""
    with ExitStack() as held:
        yield _Holding(layout, into, held).run()


@dataclass(frozen=True, slots=True)
class _Copied:
    """The index as it was at one moment."""

    index: Path | NoIndex | Damaged
    state: IndexState | None = None
    rows: Mapping[int, LedgerRow] = field(default_factory=dict)


class _Holding:
    """Does it for one store."""

    def __init__(self, layout: Layout, into: Path, held: ExitStack) -> None:
        self._layout = layout
        self._into = into
        self._held = held
        self._is_live = _is_in_use(layout)
        self._links: Links | None = None
        self._notes: list[str] = []
        self._copies = 0

    def run(self) -> Held:
        remove_stale(self._layout.root.path)
        if self._is_live:
            self._begin_links()
        mark, copied = self._look()
        missing = self._missing(mark, copied.state)
        for _ in range(_ATTEMPTS if self._is_live and missing else 0):
            mark, copied = self._look()
            before, missing = missing, self._missing(mark, copied.state)
            # What is missing twice is missing, and not being moved.
            if missing <= before:
                break
        return self._picture(mark, copied)

    def _look(self) -> tuple[LoadedMark, _Copied]:
        mark = lastmark.load(self._layout.ledgers)
        self._link()
        copied = self._copy()
        self._link()
        return mark, copied

    def _picture(self, mark: LoadedMark, copied: _Copied) -> Held:
        logs = self._ids(FileKind.ENTRY_LOG)
        if self._is_live and copied.state is not None:
            unfinished = [one for one in logs if one not in copied.state.log_ends]
            logs = [one for one in logs if one in copied.state.log_ends]
            if unfinished:
                names = ", ".join(map(filenames.entry_log, unfinished))
                self._notes.append(f"{names}: being written, and no checkpoint has completed it yet")
        return Held(
            is_live=self._is_live,
            mark=mark,
            index=copied.index,
            state=copied.state,
            rows=copied.rows,
            log_ids=tuple(logs),
            journal_ids=tuple(self._ids(FileKind.JOURNAL)),
            notes=tuple(self._notes),
            paths=self._paths(),
        )

    # ── files ────────────────────────────────────────────────────────────────────────────────────────

    def _begin_links(self) -> None:
        try:
            self._links = make_links(self._layout.root.path)
        except OSError as error:
            self._go_without(error)
        else:
            self._held.callback(self._links.close)

    def _link(self) -> None:
        try:
            for directory in (self._layout.journal, self._layout.ledgers):
                if self._links is not None:
                    self._links.hold(directory.path, _files(directory))
        except OSError as error:
            self._go_without(error)

    def _go_without(self, error: OSError) -> None:
        self._links = None
        why = error.strerror or error
        self._notes.append(f"what the store removes while it is read: files cannot be linked ({why})")

    def _paths(self) -> dict[str, Path]:
        """Where each file is to be read."""
        found = {
            name: Path(directory.path) / name
            for directory in (self._layout.journal, self._layout.ledgers)
            for name in _files(directory)
        }
        return found | (self._links.paths() if self._links else {})

    def _ids(self, kind: FileKind) -> list[int]:
        names = map(filenames.parse, self._paths())
        return sorted(name.number for name in names if name.kind is kind and name.number is not None)

    def _missing(self, mark: LoadedMark, state: IndexState | None) -> set[str]:
        """Files that what was read names, and that are not held."""
        starts = [found.journal_id for found in (_position(mark), state and state.mark) if found]
        named = {filenames.journal(one) for one in starts if one > 0}
        named |= {filenames.entry_log(one) for one in state.log_ends} if state else set()
        return named - self._paths().keys()

    # ── the index ────────────────────────────────────────────────────────────────────────────────────

    def _copy(self) -> _Copied:
        for _ in range(_COPIES_MAX):
            index = _view(self._layout)
            if not isinstance(index, LmdbIndex):
                return _Copied(index)
            index.close()
            into = self._new_directory()
            if index_copy.copy(Path(self._layout.ledgers.path) / filenames.INDEX, into):
                return _looked_into(into)
        raise OSError(errno.EAGAIN, "it changes faster than it can be copied", self._layout.ledgers.path)

    def _new_directory(self) -> Path:
        self._copies += 1
        for old in self._into.iterdir():
            shutil.rmtree(old)
        into = self._into / f"index{self._copies}"
        into.mkdir()
        return into


def _files(directory: Directory) -> list[str]:
    """The journals and entry logs in it."""
    kinds = (FileKind.JOURNAL, FileKind.ENTRY_LOG)
    return [name for name in directory.names() if filenames.parse(name).kind in kinds]


def _view(layout: Layout) -> LmdbIndex | NoIndex | Damaged:
    return LmdbPlace(layout.ledgers, layout.ledgers.path).view()


def _is_in_use(layout: Layout) -> bool:
    """Whether another process has the store open."""
    for name in _BOOKIE_LOCKS:
        path = Path(layout.ledgers.path) / name
        if path.is_file() and is_locked_elsewhere(path):
            return True
    index = _view(layout)
    if isinstance(index, LmdbIndex):
        with closing(index):
            return index.is_beside_a_writer
    return False


def _looked_into(path: Path) -> _Copied:
    index = open_copy(path)
    if isinstance(index, Damaged):
        return _Copied(index)
    with closing(index):
        try:
            return _Copied(path, index.state(), {row.ledger_id: row for row in index.rows()})
        except OSError as error:
            # Under checksums that hold: somebody has written something else there.
            return _Copied(Damaged(0, Flaw.BAD_FIELD, error.strerror or str(error)))


def _position(mark: LoadedMark) -> JournalPosition | None:
    return mark.position if isinstance(mark, Mark) else None
