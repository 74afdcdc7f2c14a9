"""Take a consistent picture of a store that another process may be writing to.

    mark       everything before it is in logs and index
    links      to existing journals and logs, so that their content stays when the store removes them
    index      copied once, by LMDB's own rules, after its pages were verified
    links      to files that the copy names and that were made in the meantime

If a journal or a log was made and removed between the two, the picture is taken again. Links are made in the
store's `audit.links/`, and only if another process has the store open. Otherwise nothing is written into its
directory, except that the links of an audit that was killed are removed.
"""

from __future__ import annotations

import errno
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from recovery.audit.snapshot import index_copy
from recovery.bookkeeper import rocksdb_index
from recovery.bookkeeper.rocksdb_index import TableFiles
from recovery.directory.audit_links import make_links, remove_stale
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark_format import Mark
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import is_locked_elsewhere
from storage.entry.read_result import Damaged, Flaw
from storage.index.lmdb.directory import LmdbIndexDirectory, open_copy
from storage.index.lmdb.index import LmdbIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.bookkeeper.rocksdb_index import RocksdbIndexCopy, UnreadIndex
    from recovery.directory.audit_links import Links, UntouchedFile
    from recovery.directory.layout import Layout
    from storage.checkpoint.mark import LoadedMark
    from storage.disk.files import Directory
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.position import JournalPosition
    from storage.index.port import NoIndex
    from storage.index.state import IndexState

_ATTEMPTS = 5
_BOOKIE_LOCKS = ("ledgers/LOCK", "locations/LOCK")
"""The files that a running bookie has locked, if it keeps its index in RocksDB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSnapshot:
    """A consistent picture of a store. Its files stay readable while the snapshot is held."""

    is_live: bool
    mark: LoadedMark
    index: Path | NoIndex | Damaged
    """The directory of a copy of the index."""
    state: IndexState | None = None
    """The state in the copy, and its ledger rows."""
    rows: Mapping[int, LedgerRecord] = field(default_factory=dict)
    log_ids: tuple[int, ...] = ()
    journal_ids: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes on what is not covered, with the reason."""
    paths: Mapping[str, Path] = field(default_factory=dict)
    bookie_index: RocksdbIndexCopy | UnreadIndex | None = None
    """A copy of a bookie's own index."""
    untouched_files: tuple[UntouchedFile, ...] = ()
    """Files and directories in `audit.links` that no audit of this user made."""

    def log_path(self, log_id: int) -> Path:
        return self.paths[filenames.entry_log(log_id)]

    def journal_path(self, journal_id: int) -> Path:
        return self.paths[filenames.journal(journal_id)]


@contextmanager
def take_snapshot(layout: Layout, into: Path) -> Iterator[StoreSnapshot]:
    """Hold a snapshot of the store as long as the `with` lasts. `into` is an empty directory for the copy."""
    with ExitStack() as held:
        yield _SnapshotTaker(layout, into, held).run()


@dataclass(frozen=True, slots=True)
class _CopiedIndex:
    """The index as it was at one moment."""

    index: Path | NoIndex | Damaged
    state: IndexState | None = None
    rows: Mapping[int, LedgerRecord] = field(default_factory=dict)


class _SnapshotTaker:
    """Takes the snapshot of one store."""

    def __init__(self, layout: Layout, into: Path, held: ExitStack) -> None:
        self._layout = layout
        self._into = into
        self._stack = held
        self._is_live = _is_in_use(layout)
        self._links: Links | None = None
        self._notes: list[str] = []
        self._untouched_files: tuple[UntouchedFile, ...] = ()

    def run(self) -> StoreSnapshot:
        self._untouched_files = remove_stale(self._layout.root.path)
        if self._is_live:
            self._begin_links()
        mark, copied = self._read_store()
        missing = self._missing_files(mark, copied.state)
        for _ in range(_ATTEMPTS if self._is_live and missing else 0):
            mark, copied = self._read_store()
            before, missing = missing, self._missing_files(mark, copied.state)
            # A file that is missing twice is missing, and is not just being moved.
            if missing <= before:
                break
        bookie_index = self._copy_bookie_index()
        # Logs that the copy names and that were made in the meantime.
        self._link()
        return replace(self._picture(mark, copied), bookie_index=bookie_index)

    def _read_store(self) -> tuple[LoadedMark, _CopiedIndex]:
        mark = lastmark.load(self._layout.ledgers)
        self._link()
        copied = self._copy()
        self._link()
        return mark, copied

    def _picture(self, mark: LoadedMark, copied: _CopiedIndex) -> StoreSnapshot:
        logs, journals = self._ids(FileKind.ENTRY_LOG), self._ids(FileKind.JOURNAL)
        if self._is_live and copied.state is not None:
            state, there = copied.state, self._names()
            # A link may hold a file that the store has removed since. Its entries may be deleted by a
            # tombstone that the copy of the index does not have any more.
            journals = [
                one for one in journals if one >= state.mark.journal_id or filenames.journal(one) in there
            ]
            unfinished = [
                one
                for one in logs
                if one not in state.log_ends and one not in state.gone and filenames.entry_log(one) in there
            ]
            logs = [one for one in logs if one in state.log_ends]
            if unfinished:
                names = ", ".join(map(filenames.entry_log, unfinished))
                self._notes.append(f"{names}: being written, and no checkpoint has completed it yet")
        return StoreSnapshot(
            is_live=self._is_live,
            mark=mark,
            index=copied.index,
            state=copied.state,
            rows=copied.rows,
            log_ids=tuple(logs),
            journal_ids=tuple(journals),
            notes=tuple(self._notes),
            paths=self._paths(),
            untouched_files=self._untouched_files,
        )

    # ── files ────────────────────────────────────────────────────────────────────────────────────────

    def _begin_links(self) -> None:
        try:
            self._links = make_links(self._layout.root.path)
        except OSError as error:
            self._continue_without_links(error)
        else:
            self._stack.callback(self._links.close)

    def _link(self) -> None:
        try:
            for directory in (self._layout.journal, self._layout.ledgers):
                if self._links is not None:
                    self._links.hold(directory.path, _files(directory))
        except OSError as error:
            self._continue_without_links(error)

    def _continue_without_links(self, error: OSError) -> None:
        self._links = None
        why = error.strerror or error
        self._notes.append(f"files that the store removes during the audit: they cannot be linked ({why})")

    def _paths(self) -> dict[str, Path]:
        """Return the path at which each file is to be read."""
        found = {
            name: Path(directory.path) / name
            for directory in (self._layout.journal, self._layout.ledgers)
            for name in _files(directory)
        }
        return found | (self._links.paths() if self._links else {})

    def _names(self) -> set[str]:
        """Return the journals and logs that the store has now."""
        return {name for one in (self._layout.journal, self._layout.ledgers) for name in _files(one)}

    def _ids(self, kind: FileKind) -> list[int]:
        names = map(filenames.parse, self._paths())
        return sorted(name.number for name in names if name.kind is kind and name.number is not None)

    def _missing_files(self, mark: LoadedMark, state: IndexState | None) -> set[str]:
        """Return the files that mark and index name and that are not held."""
        starts = [found.journal_id for found in (_position(mark), state and state.mark) if found]
        # If the store is closed meanwhile, its mark no longer names the prepared journal, which is removed.
        starts.append(lastmark.newest_named(mark) if isinstance(mark, Mark) else 0)
        named = {filenames.journal(one) for one in starts if one > 0}
        named |= {filenames.entry_log(one) for one in state.log_ends} if state else set()
        return named - self._paths().keys()

    # ── the index ────────────────────────────────────────────────────────────────────────────────────

    def _copy(self) -> _CopiedIndex:
        try:
            copied = index_copy.copy_verified(self._layout.ledgers, self._into)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                raise
            return _CopiedIndex(Damaged(0, Flaw.UNREADABLE, error.strerror or str(error)))
        return _read_copy(copied) if isinstance(copied, Path) else _CopiedIndex(copied)

    def _copy_bookie_index(self) -> RocksdbIndexCopy | UnreadIndex | None:
        ledgers = Path(self._layout.ledgers.path)
        # Only what the layout shows: a part of a bookie may be one without entry logs.
        if filenames.BOOKIE_LOCATIONS not in self._layout.ledgers.names():
            return None
        if not rocksdb_index.is_there(ledgers):
            return None
        into = self._stack.enter_context(TemporaryDirectory(prefix="ledgerstore-bookie-index-"))
        tables = TableFiles.COPIES if self._is_live else TableFiles.LINKS
        return rocksdb_index.copy(ledgers, Path(into), tables)


def _files(directory: Directory) -> list[str]:
    """Return the names of the journals and entry logs in a directory."""
    kinds = (FileKind.JOURNAL, FileKind.ENTRY_LOG)
    return [name for name in directory.names() if filenames.parse(name).kind in kinds]


def _view(layout: Layout) -> LmdbIndex | NoIndex | Damaged:
    return LmdbIndexDirectory(layout.ledgers, layout.ledgers.path).view()


def _is_in_use(layout: Layout) -> bool:
    """Return whether another process has the store open."""
    for name in _BOOKIE_LOCKS:
        path = Path(layout.ledgers.path) / name
        if path.is_file() and is_locked_elsewhere(path):
            return True
    index = _view(layout)
    if isinstance(index, LmdbIndex):
        with closing(index):
            return index.is_beside_a_writer
    return False


def _read_copy(path: Path) -> _CopiedIndex:
    index = open_copy(path)
    if isinstance(index, Damaged):
        return _CopiedIndex(index)
    with closing(index):
        try:
            return _CopiedIndex(path, index.state(), {row.ledger_id: row for row in index.rows()})
        except OSError as error:
            # The checksums are right, so that another program has written something else.
            return _CopiedIndex(Damaged(0, Flaw.BAD_FIELD, error.strerror or str(error)))


def _position(mark: LoadedMark) -> JournalPosition | None:
    return mark.position if isinstance(mark, Mark) else None
