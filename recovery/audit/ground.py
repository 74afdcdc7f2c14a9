"""What a directory holds, before any of it is read whole: whose it is, its mark, rows, index and files.

The order, for a store that may be live: the mark first, then the rows, then the names, and the index last of
all (see `recovery.audit.snapshot`). What a checkpoint moves meanwhile is in the index then, and every journal
from the mark on is either listed here or was trimmed because its entries are in the logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery import founding
from recovery.audit.ways import Ways
from recovery.leftovers import newest_foreign_journal
from recovery.lineage import in_order
from recovery.past import latest_rows
from recovery.verify.catalogue import KINDS
from recovery.verify.facts import NotLookedAt, Owner
from recovery.verify.finding import Severity
from storage import cookie, filenames, ledger_rows
from storage.codec import entrylog as codec
from storage.codec.cookie import Cookie
from storage.codec.mark import BOOKIE_SIZE, EmptyMark, Mark
from storage.cookie import NoCookie
from storage.entry import DigestType
from storage.errors import CorruptionError, NewerFormat, NotAStore
from storage.filenames import FileKind
from storage.lastmark import NoMark, newest_named
from storage.outcome import Damaged, Flaw, Torn
from storage.position import START, JournalPosition
from storage.posix_files import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from recovery.audit.snapshot import Held
    from recovery.founding import Layout
    from recovery.lineage import FoundHeader
    from recovery.verify.finding import Finding
    from storage.files import Directory
    from storage.index import NoIndex
    from storage.index_state import IndexState
    from storage.lastmark import LoadedMark
    from storage.row import LedgerRow

_DRAFTS = frozenset(
    {
        FileKind.JOURNAL_DRAFT,
        FileKind.ENTRY_LOG_DRAFT,
        FileKind.LAST_MARK_DRAFT,
        FileKind.LEDGER_ROWS_DRAFT,
        FileKind.INDEX_DRAFT,
        FileKind.COOKIE_DRAFT,
    }
)


@dataclass(frozen=True, slots=True)
class LogFile:
    """An entry log that is to be read."""

    log_id: int
    path: str
    size: int
    header: FoundHeader
    limit: int | None
    """Where its durable content ends, where that is known."""
    is_leftover: bool
    is_active: bool

    @property
    def name(self) -> str:
        return filenames.entry_log(self.log_id)


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A journal that is to be read. `start`: from where it is replayed; `None`: not at all."""

    journal_id: int
    path: str
    size: int
    start: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """One store, ready to be read."""

    store: str
    owner: Owner
    is_live: bool
    mark: LoadedMark
    replay_from: JournalPosition
    rows: Mapping[int, LedgerRow]
    rows_damage: CorruptionError | None
    ways: Ways
    index: Path | NoIndex | Damaged | NotLookedAt
    """Where a copy of the index lies."""
    index_state: IndexState | None
    logs: tuple[LogFile, ...]
    """In the order in which their ids were given out."""
    journals: tuple[JournalFile, ...]
    complaints: tuple[Finding, ...]
    not_covered: tuple[str, ...]


def survey(store: str, layout: Layout, held: Held, ways: Ways) -> Ground:
    """What there is. Raises `NotAStore` where nothing is; what is damaged is a finding."""
    return _Survey(store, layout, held, ways).run()


class _Survey:
    """Looks at one directory, in the order that a live store asks for."""

    def __init__(self, store: str, layout: Layout, held: Held, ways: Ways) -> None:
        self._store = store
        self._layout = layout
        self._held = held
        self._ways = ways
        self._complaints: list[Finding] = []
        self._not_covered: list[str] = list(held.notes)

    def run(self) -> Ground:
        mark, state = self._held.mark, self._held.state
        owner = self._owner(mark, state)
        if owner is Owner.BOOKIE or _is_older(mark, state):
            # An older index is another past: what it says of logs and ledgers does not count.
            state = None
        rows, damage = self._rows(mark, state)
        replay_from = _replay_from(mark, self._held.state)
        self._look_at_cookies()
        self._look_at_names()
        self._look_at_mark(mark)
        return Ground(
            store=self._store,
            owner=owner,
            is_live=self._held.is_live,
            mark=mark,
            replay_from=replay_from,
            rows=rows,
            rows_damage=damage,
            ways=self._declared(owner, rows, damage),
            index=self._index(owner),
            index_state=self._held.state if owner is Owner.OURS else None,
            logs=tuple(self._logs(owner, mark, state)),
            journals=tuple(self._journals(replay_from)),
            complaints=tuple(self._complaints),
            not_covered=tuple(self._not_covered),
        )

    # ── whose it is ──────────────────────────────────────────────────────────────────────────────────

    def _owner(self, mark: LoadedMark, state: IndexState | None) -> Owner:
        is_marked = isinstance(mark, Mark) and mark.trailer is not None
        if not is_marked and not founding.was_ours(self._layout):
            return Owner.BOOKIE
        if isinstance(mark, EmptyMark) or (isinstance(mark, Mark) and mark.trailer is None):
            return Owner.BOOKIE
        if state is not None and any(_is_foreign(self._header(one)) for one in self._unindexed(state)):
            return Owner.BOOKIE
        known = newest_named(mark) if isinstance(mark, Mark) else state.mark.journal_id if state else 0
        if known and newest_foreign_journal(self._layout.journal, known) > known:
            return Owner.BOOKIE
        return Owner.OURS

    def _unindexed(self, state: IndexState) -> list[int]:
        return [one for one in self._held.log_ids if one not in state.log_ends]

    def _declared(self, owner: Owner, rows: Mapping[int, LedgerRow], damage: CorruptionError | None) -> Ways:
        declared = {one: row.digest_type for one, row in rows.items() if row.digest_type is not None}
        undeclared = frozenset(one for one, row in rows.items() if row.digest_type is None)
        # A ledger without a row is a plain one, if its row is not among those that are lost.
        presumed = DigestType.CRC32C if owner is Owner.OURS and damage is None else None
        if owner is Owner.BOOKIE:
            # Only that an earlier ledger was deleted: the id may be a bookie's now, protected in any way.
            declared = {one: kind for one, kind in declared.items() if rows[one].tombstone is None}
        return Ways(declared, presumed, undeclared, self._ways.passwords, self._ways.password)

    # ── rows, cookies, names ─────────────────────────────────────────────────────────────────────────

    def _rows(
        self, mark: LoadedMark, state: IndexState | None
    ) -> tuple[Mapping[int, LedgerRow], CorruptionError | None]:
        named = mark.trailer.rows_sequence if isinstance(mark, Mark) and mark.trailer else 0
        try:
            loaded = ledger_rows.load(self._layout.ledgers, max(named, state.rows_sequence if state else 0))
        except CorruptionError as error:
            return self._held.rows, error
        except NewerFormat as error:
            self._complain("DIR-003", file=filenames.LEDGER_ROWS, detail=str(error))
            return self._held.rows, None
        if loaded.torn is not None:
            detail = "a row was being written: nobody had been answered for it"
            self._complain(
                "LGR-002",
                severity=Severity.INFORMATION,
                file=filenames.LEDGER_ROWS,
                offset=loaded.torn,
                detail=detail,
            )
        return latest_rows(loaded.rows, self._held.rows), None

    def _look_at_cookies(self) -> None:
        found = {}
        for directory in (self._layout.journal, self._layout.ledgers):
            stamped = cookie.load(directory)
            if isinstance(stamped, Cookie):
                found[directory.path] = stamped
            elif isinstance(stamped, Torn | Damaged) and stamped.flaw is Flaw.FUTURE_VERSION:
                self._complain("DIR-003", file=filenames.COOKIE, detail=f"{directory.path}: {stamped}")
            else:
                missing = isinstance(stamped, NoCookie)
                words = "missing" if missing else str(stamped)
                offset = None if missing else stamped.offset  # type: ignore[union-attr]
                name = f"{_directory_name(directory)}/{filenames.COOKIE}"
                self._complain("CKE-001", file=name, offset=offset, detail=words)
        # Of one id in two spellings one is damaged: a bit of a hexadecimal letter makes the other case of it.
        spelled = {one.instance_id for one in found.values() if one.store_id is None}
        said = {(founding.id_of(one), one.layout_version) for one in found.values()}
        if len(said) > 1 or len(spelled) > 1:
            names = " and ".join(_directory_name_of(path) for path in found)
            self._complain("CKE-001", file=filenames.COOKIE, detail=f"{names} belong to different stores")

    def _look_at_mark(self, mark: LoadedMark) -> None:
        """A bookie that was killed before its first journal leaves no other trace in a store of ours."""
        if isinstance(mark, Mark) and mark.trailer is None and founding.was_ours(self._layout):
            detail = "as a bookie writes it, in a store of ours: one has run here, or the file lost its end"
            self._complain(
                "MRK-001",
                severity=Severity.INFORMATION,
                file=filenames.LAST_MARK,
                offset=BOOKIE_SIZE,
                detail=detail,
            )

    def _look_at_names(self) -> None:
        for directory in (self._layout.journal, self._layout.ledgers):
            for name in directory.names():
                kind = filenames.parse(name).kind
                if kind is FileKind.UNKNOWN:
                    self._complain("DIR-001", file=name)
                elif kind in _DRAFTS:
                    self._complain("DIR-002", file=name, detail="a draft that never got its name")

    def _complain(self, kind: str, **where: object) -> None:
        self._complaints.append(KINDS[kind].at(store=self._store, **where))

    # ── the index ────────────────────────────────────────────────────────────────────────────────────

    def _index(self, owner: Owner) -> Path | NoIndex | Damaged | NotLookedAt:
        if owner is Owner.BOOKIE:
            why = "a bookie's own is not ours to read, and one of ours would not be up to date"
            self._not_covered.append(f"the index: {why}")
            return NotLookedAt()
        return self._held.index

    # ── entry logs ───────────────────────────────────────────────────────────────────────────────────

    def _header(self, log_id: int) -> FoundHeader:
        try:
            with open_file(self._held.log_path(log_id)) as file:
                return codec.decode_header(file.read(0, codec.HEADER_SIZE))
        except OSError as error:
            # Whoever is to read it will say so too.
            return Damaged(0, Flaw.FILE_SHORT, error.strerror or str(error))

    def _logs(self, owner: Owner, mark: LoadedMark, state: IndexState | None) -> Iterator[LogFile]:
        ids = in_order(self._held.log_ids)
        headers = {one: self._header(one) for one in ids}
        ends = self._log_ends(owner, mark, state, headers)
        newest = ids[-1] if ids else None
        for log_id in ids:
            path = self._held.log_path(log_id)
            size = path.stat().st_size
            limit = ends.get(log_id)
            yield LogFile(
                log_id,
                str(path),
                size,
                headers[log_id],
                limit if limit is not None and limit > codec.HEADER_SIZE else None,
                is_leftover=owner is Owner.OURS and state is not None and log_id not in ends,
                is_active=log_id == newest,
            )

    def _log_ends(
        self,
        owner: Owner,
        mark: LoadedMark,
        state: IndexState | None,
        headers: Mapping[int, FoundHeader],
    ) -> Mapping[int, int]:
        if owner is Owner.BOOKIE:
            return {}
        if state is not None:
            return state.log_ends
        ends: dict[int, int] = {}
        if isinstance(mark, Mark) and mark.trailer and mark.trailer.log_end:
            ends[mark.trailer.log_end.log_id] = mark.trailer.log_end.offset
        for header in headers.values():
            origin = header.origin if isinstance(header, codec.Header) else None
            if origin is not None and origin.previous is not None:
                previous = origin.previous
                ends[previous.log_id] = max(previous.offset, ends.get(previous.log_id, 0))
        return ends

    # ── journals ─────────────────────────────────────────────────────────────────────────────────────

    def _journals(self, replay_from: JournalPosition) -> Iterator[JournalFile]:
        for journal_id in self._held.journal_ids:
            path = self._held.journal_path(journal_id)
            start = None if journal_id < replay_from.journal_id else 0
            if journal_id == replay_from.journal_id:
                start = replay_from.offset
            yield JournalFile(journal_id, str(path), path.stat().st_size, start)


def check_is_a_store(layout: Layout) -> None:
    """Raises unless there is a store, or a bookie's directory."""
    for directory in (layout.journal, layout.ledgers):
        try:
            directory.names()
        except (FileNotFoundError, NotADirectoryError):
            raise NotAStore(layout.root.path, f"it has no {_directory_name(directory)}/current") from None


def _is_foreign(header: FoundHeader) -> bool:
    return isinstance(header, codec.Header) and header.origin is None and header.version > 0


def _is_older(mark: LoadedMark, state: IndexState | None) -> bool:
    trailer = mark.trailer if isinstance(mark, Mark) else None
    return state is not None and trailer is not None and state.generation < trailer.generation


def _replay_from(mark: LoadedMark, state: IndexState | None) -> JournalPosition:
    position = mark.position if isinstance(mark, Mark) else START
    if isinstance(mark, Damaged | Torn | NoMark) and state is not None:
        return state.mark
    # A checkpoint that ended between its last two steps: an opening goes on from the index.
    ours = isinstance(mark, Mark) and mark.trailer is not None
    return max(position, state.mark) if ours and state is not None else position


def _directory_name(directory: Directory) -> str:
    return _directory_name_of(directory.path)


def _directory_name_of(path: str) -> str:
    return path.rstrip("/").split("/")[-2]
