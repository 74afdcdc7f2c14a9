"""Take inventory of a directory before any file is read whole: owner, mark, ledger metadata, index and files.

For a store that may be live the order is: the mark first, then the ledger metadata, then the names, and the
index last (see `recovery.audit.snapshot.live_store`). What a checkpoint moves in the meantime is then in the
index, and every journal from the mark on is either listed or was trimmed because its entries are in the logs.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.model.store_facts import DirectoryOwner, IndexNotRead, StoreIdentity
from recovery.bookkeeper.rocksdb_index import UnreadIndex
from recovery.directory.authority import (
    Authority,
    AuthorityRule,
    DataFiles,
    Facts,
    ForeignFile,
    IndexFile,
    MetadataFile,
    ReplayFrom,
    decide,
)
from recovery.directory.evidence import compare, durable_group, is_deleted_since, mark_file, newest_rows
from recovery.directory.layout import HOST, has_our_files, load_store_id, store_id_of
from recovery.directory.orphans import newest_foreign_journal
from recovery.rebuild.entry_log_chain import in_creation_order
from storage.checkpoint.mark import newest_named
from storage.checkpoint.mark_format import BOOKIE_SIZE, EmptyMark, Mark
from storage.disk import cookie, filenames
from storage.disk.cookie import NoCookie
from storage.disk.cookie_format import Cookie
from storage.disk.filenames import FileKind
from storage.disk.posix import open_file
from storage.entry.ledger_record_table import living_rows
from storage.entry.model import DigestType
from storage.entry.position import START, JournalPosition
from storage.entry.read_result import Damaged, Flaw, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog import lineage
from storage.entrylog.lineage import NoLineage
from storage.entrylog.lineage_format import Lineage
from storage.errors import CorruptionError, NewerFormat, NotAStore, StoreError
from storage.ledgers import metadata_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from recovery.audit.findings.finding import Finding
    from recovery.audit.snapshot.live_store import StoreSnapshot
    from recovery.bookkeeper.directories import BookiePart
    from recovery.bookkeeper.rocksdb_index import RocksdbIndexCopy
    from recovery.directory.layout import Layout
    from recovery.rebuild.entry_log_chain import FoundHeader
    from storage.checkpoint.mark import LoadedMark
    from storage.disk.files import Directory
    from storage.entry.ledger_record import LedgerRecord
    from storage.index.port import NoIndex
    from storage.index.state import IndexState

_DRAFTS = frozenset(
    {
        FileKind.JOURNAL_DRAFT,
        FileKind.ENTRY_LOG_DRAFT,
        FileKind.LAST_MARK_DRAFT,
        FileKind.LEDGER_ROWS_DRAFT,
        FileKind.INDEX_DRAFT,
        FileKind.COOKIE_DRAFT,
        FileKind.RESERVE_DRAFT,
    }
)


@dataclass(frozen=True, slots=True)
class LogFile:
    """An entry log to be read."""

    log_id: int
    path: str
    size: int
    header: FoundHeader
    limit: int | None
    """Where its durable content ends, if that is known."""
    is_leftover: bool
    is_active: bool

    @property
    def name(self) -> str:
        return filenames.entry_log(self.log_id)


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A journal to be read. `start` is where replay begins, or `None` if it is not replayed."""

    journal_id: int
    path: str
    size: int
    start: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInventory:
    """One store, ready to be read."""

    store: str
    owner: DirectoryOwner
    identity: StoreIdentity = field(default_factory=StoreIdentity)
    is_live: bool
    mark: LoadedMark
    replay_from: JournalPosition
    rows: Mapping[int, LedgerRecord]
    rows_damage: CorruptionError | None
    policy: DigestPolicy
    index: Path | NoIndex | Damaged | IndexNotRead
    """Where a copy of the index is."""
    index_state: IndexState | None
    bookie_index: RocksdbIndexCopy | UnreadIndex | None = None
    """A copy of a bookie's own index; `None` if there is none, or if it would be outdated."""
    deleted_since: frozenset[int] = frozenset()
    """Ledgers that were deleted since the index was last changed. Their places in it are void, and the next
    checkpoint or opening removes them.
    """
    truncated_before: Mapping[int, int] = field(default_factory=dict)
    """For each ledger whose truncation the index has: the first entry that may have a place in it.

    A truncation that only `ledgers.rows` has yet is not among them: its places are removed by the next
    checkpoint or opening, in the transaction that brings the truncation into the index.
    """
    lineage: Lineage | NoLineage | Damaged
    logs: tuple[LogFile, ...]
    """In the order in which their ids were assigned."""
    journals: tuple[JournalFile, ...]
    part: BookiePart | None = None
    """Set if these are only some of the directories of a bookie."""
    inventory_findings: tuple[Finding, ...]
    not_covered: tuple[str, ...]


def take_inventory(
    store: str, layout: Layout, held: StoreSnapshot, policy: DigestPolicy, unreadable: Mapping[str, str]
) -> StoreInventory:
    """Return what the directory contains, without the `unreadable` paths. Damage becomes a finding."""
    return _InventoryTaker(store, layout, held, policy).run(unreadable)


class _InventoryTaker:
    """Takes inventory of one directory, in the order that a live store requires."""

    def __init__(self, store: str, layout: Layout, held: StoreSnapshot, policy: DigestPolicy) -> None:
        self._store = store
        self._layout = layout
        self._held = held
        self._policy = policy
        self._findings: list[Finding] = []
        self._not_covered: list[str] = list(held.notes)

    def run(self, unreadable: Mapping[str, str]) -> StoreInventory:
        for path, why in unreadable.items():
            self._add_finding("DIR-004", file=path.rpartition("/")[2], detail=why)
        mark, state = self._held.mark, self._held.state
        rule = self._rule(mark, state)
        owner = self._owner(rule.authority)
        if owner is DirectoryOwner.BOOKIE or rule.authority is Authority.MARK:
            # The state of an index of another history does not describe these logs and ledgers.
            state = None
        rows, damage = self._rows(mark, state)
        # After the copy of the index, so that every log which is missing there is left out here too.
        known = self._lineage(owner)
        replay_from = _replay_from(rule, mark, self._held.state)
        self._check_cookies()
        self._check_names()
        self._check_mark(mark)
        return StoreInventory(
            store=self._store,
            owner=owner,
            identity=self._identity(),
            is_live=self._held.is_live,
            mark=mark,
            replay_from=replay_from,
            rows=rows,
            rows_damage=damage,
            policy=self._declared(owner, rows, damage),
            index=self._index(owner),
            bookie_index=self._held.bookie_index if owner is DirectoryOwner.BOOKIE else None,
            index_state=self._held.state if owner is DirectoryOwner.OURS else None,
            deleted_since=frozenset(
                ledger_id for ledger_id, row in rows.items() if is_deleted_since(row, self._held.rows)
            ),
            truncated_before={
                row.ledger_id: row.first_entry_id
                for row in living_rows(self._held.rows)
                if row.first_entry_id and not is_deleted_since(rows[row.ledger_id], self._held.rows)
            },
            lineage=known,
            logs=tuple(self._logs(owner, mark, state, known)),
            journals=tuple(self._journals(replay_from)),
            inventory_findings=tuple(self._findings),
            not_covered=tuple(self._not_covered),
        )

    # ── whose it is ──────────────────────────────────────────────────────────────────────────────────

    def _rule(self, mark: LoadedMark, state: IndexState | None) -> AuthorityRule:
        """Return what the table decides, which an opening asks too."""
        has_metadata = filenames.LEDGER_ROWS in self._layout.ledgers.names()
        has_data = has_metadata or self._held.log_ids or self._held.journal_ids
        index = self._index_file(mark, state)
        return decide(
            Facts(
                mark_file(mark),
                index,
                MetadataFile.PRESENT if has_metadata else MetadataFile.MISSING,
                self._foreign(mark, state, index),
                DataFiles.SOME if has_data else DataFiles.NONE,
            )
        )

    def _index_file(self, mark: LoadedMark, state: IndexState | None) -> IndexFile:
        found = self._held.index
        if state is not None:
            return compare(mark, state)
        if not isinstance(found, Damaged):
            return IndexFile.MISSING
        return IndexFile.NEWER if found.flaw is Flaw.FUTURE_VERSION else IndexFile.DAMAGED

    def _foreign(self, mark: LoadedMark, state: IndexState | None, index: IndexFile) -> ForeignFile:
        is_ours = isinstance(mark, Mark) and mark.trailer is not None
        known = newest_named(mark) if is_ours and isinstance(mark, Mark) else None
        if known is None and state is not None:
            known = state.mark.journal_id
        if known is not None and newest_foreign_journal(self._layout.journal, known) > known:
            return ForeignFile.JOURNAL
        if state is None or index is IndexFile.OTHER_HISTORY:
            return ForeignFile.NONE
        is_foreign = any(_is_foreign(self._header(one)) for one in self._unindexed(state))
        return ForeignFile.LOG if is_foreign else ForeignFile.NONE

    def _owner(self, authority: Authority) -> DirectoryOwner:
        if authority in (Authority.AGREED, Authority.INDEX, Authority.MARK):
            return DirectoryOwner.OURS
        if authority in (Authority.BOOKIE, Authority.FOREIGN):
            return DirectoryOwner.BOOKIE
        # An opening would refuse the store. It is read as far as it can be, and the reason is a finding.
        return DirectoryOwner.OURS if has_our_files(self._layout) else DirectoryOwner.BOOKIE

    def _unindexed(self, state: IndexState) -> list[int]:
        return [one for one in self._held.log_ids if one not in state.log_ends and one not in state.gone]

    def _declared(
        self, owner: DirectoryOwner, rows: Mapping[int, LedgerRecord], damage: CorruptionError | None
    ) -> DigestPolicy:
        declared = {one: row.digest_type for one, row in rows.items() if row.digest_type is not None}
        undeclared = frozenset(one for one, row in rows.items() if row.digest_type is None)
        # A ledger without a row has CRC-32C, unless rows are lost.
        presumed = DigestType.CRC32C if owner is DirectoryOwner.OURS and damage is None else None
        if owner is DirectoryOwner.BOOKIE:
            # Without the types of deleted ledgers, because a bookie may use their ids now with any digest
            # type.
            declared = {one: kind for one, kind in declared.items() if rows[one].tombstone is None}
        return DigestPolicy(declared, presumed, undeclared, self._policy.passwords, self._policy.password)

    # ── rows, cookies, names ─────────────────────────────────────────────────────────────────────────

    def _rows(
        self, mark: LoadedMark, state: IndexState | None
    ) -> tuple[Mapping[int, LedgerRecord], CorruptionError | None]:
        known = durable_group(self._layout, mark, state)
        try:
            loaded = metadata_log.load(self._layout.ledgers, known)
        except CorruptionError as error:
            return self._held.rows, error
        except NewerFormat as error:
            self._add_finding("DIR-003", file=filenames.LEDGER_ROWS, detail=str(error))
            return self._held.rows, None
        if loaded.torn is not None:
            detail = "a row was being written, and its caller had got no answer"
            self._add_finding(
                "LGR-002",
                severity=Severity.INFORMATION,
                file=filenames.LEDGER_ROWS,
                offset=loaded.torn,
                detail=detail,
            )
        return newest_rows(loaded.rows, self._held.rows), None

    def _identity(self) -> StoreIdentity:
        found = [cookie.load(directory) for directory in (self._layout.ledgers, self._layout.journal)]
        stamped = next((one for one in found if isinstance(one, Cookie)), None)
        if stamped is None:
            return StoreIdentity(host=platform.node())
        bookie_id = "" if stamped.bookie_host == HOST else stamped.bookie_host
        return StoreIdentity(host=platform.node(), bookie_id=bookie_id, instance_id=stamped.instance_id or "")

    def _check_cookies(self) -> None:
        found = {}
        for directory in (self._layout.journal, self._layout.ledgers):
            stamped = cookie.load(directory)
            if isinstance(stamped, Cookie):
                found[directory.path] = stamped
            elif isinstance(stamped, Torn | Damaged) and stamped.flaw is Flaw.FUTURE_VERSION:
                self._add_finding("DIR-003", file=filenames.COOKIE, detail=f"{directory.path}: {stamped}")
            else:
                missing = isinstance(stamped, NoCookie)
                words = "missing" if missing else str(stamped)
                offset = None if missing else stamped.offset  # type: ignore[union-attr]
                name = f"{_directory_name(directory)}/{filenames.COOKIE}"
                self._add_finding("CKE-001", file=name, offset=offset, detail=words)
        # Two spellings of one id mean that one is damaged: a flipped bit changes the case of a hexadecimal
        # letter.
        spelled = {one.instance_id for one in found.values() if one.store_id is None}
        said = {(store_id_of(one), one.layout_version) for one in found.values()}
        if len(said) > 1 or len(spelled) > 1:
            names = " and ".join(_directory_name_of(path) for path in found)
            self._add_finding("CKE-001", file=filenames.COOKIE, detail=f"{names} belong to different stores")

    def _check_mark(self, mark: LoadedMark) -> None:
        """Report a mark in a bookie's format. A bookie that was killed before its first journal leaves no
        other trace.
        """
        if isinstance(mark, EmptyMark) and has_our_files(self._layout):
            detail = (
                "empty: a bookie was killed while it wrote the file, or the file was cut; an opening replays"
            )
            self._add_finding(
                "MRK-001",
                severity=Severity.WARNING,
                file=filenames.LAST_MARK,
                offset=0,
                detail=f"{detail} every journal",
            )
        if isinstance(mark, Mark) and mark.trailer is None and has_our_files(self._layout):
            detail = "in a bookie's format: a bookie has run in this store, or the file lost its end"
            self._add_finding(
                "MRK-001",
                severity=Severity.INFORMATION,
                file=filenames.LAST_MARK,
                offset=BOOKIE_SIZE,
                detail=detail,
            )

    def _check_names(self) -> None:
        for directory in (self._layout.journal, self._layout.ledgers):
            for name in directory.names():
                kind = filenames.parse(name).kind
                if kind is FileKind.UNKNOWN:
                    self._add_finding("DIR-001", file=name)
                elif kind in _DRAFTS:
                    self._add_finding("DIR-002", file=name, detail="a draft that was never renamed")
        for left in self._held.untouched_files:
            self._add_finding("DIR-001", file=left.name, detail=left.why)

    def _add_finding(self, kind: str, **where: object) -> None:
        self._findings.append(KINDS[kind].at(store=self._store, **where))

    # ── the index ────────────────────────────────────────────────────────────────────────────────────

    def _index(self, owner: DirectoryOwner) -> Path | NoIndex | Damaged | IndexNotRead:
        if owner is DirectoryOwner.BOOKIE:
            match self._held.bookie_index:
                case None:
                    why = "the bookie keeps none in RocksDB, and one of ledgerstore would be outdated"
                    self._not_covered.append(f"the index: {why}")
                case UnreadIndex(why=why):
                    self._not_covered.append(f"the bookie's index: {why}")
            return IndexNotRead()
        return self._held.index

    # ── entry logs ───────────────────────────────────────────────────────────────────────────────────

    def _header(self, log_id: int) -> FoundHeader:
        try:
            with open_file(self._held.log_path(log_id)) as file:
                return entrylog_format.decode_header(file.read(0, entrylog_format.HEADER_SIZE))
        except OSError as error:
            # The task that reads the log reports the error too.
            return Damaged(0, Flaw.FILE_SHORT, error.strerror or str(error))

    def _lineage(self, owner: DirectoryOwner) -> Lineage | NoLineage | Damaged:
        if owner is DirectoryOwner.BOOKIE:
            return NoLineage()
        found: Lineage | NoLineage | Damaged = NoLineage()
        try:
            for store_id in self._store_ids():
                found = lineage.load(self._layout.ledgers, store_id)
                if isinstance(found, Lineage):
                    break
        except NewerFormat as error:
            self._add_finding("DIR-003", file=filenames.LINEAGE, detail=str(error))
        return found

    def _store_ids(self) -> list[bytes]:
        """Return the ids that the store may have: that of its cookies, otherwise those in headers of logs."""
        try:
            return [load_store_id(self._layout)]
        except StoreError:
            # A cookie is damaged or missing, which is a finding already. Without the lineage, every log that
            # was removed would be reported as missing too.
            headers = [self._header(one) for one in self._held.log_ids]
        origins = [one.origin for one in headers if isinstance(one, entrylog_format.LogHeader)]
        return sorted({origin.store_id for origin in origins if origin is not None})

    def _logs(
        self,
        owner: DirectoryOwner,
        mark: LoadedMark,
        state: IndexState | None,
        known: Lineage | NoLineage | Damaged,
    ) -> Iterator[LogFile]:
        ids = in_creation_order(self._held.log_ids)
        headers = {one: self._header(one) for one in ids}
        ends = self._log_ends(owner, mark, state, headers)
        gone = known.gone if isinstance(known, Lineage) and state is None else ()
        newest = ids[-1] if ids else None
        for log_id in ids:
            path = self._held.log_path(log_id)
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                # Only without links. A log that counts is missed by the checks.
                continue
            limit = ends.get(log_id)
            yield LogFile(
                log_id,
                str(path),
                size,
                headers[log_id],
                limit if limit is not None and limit > entrylog_format.HEADER_SIZE else None,
                is_leftover=owner is DirectoryOwner.OURS
                and (log_id in gone or (state is not None and log_id not in ends)),
                is_active=log_id == newest,
            )

    def _log_ends(
        self,
        owner: DirectoryOwner,
        mark: LoadedMark,
        state: IndexState | None,
        headers: Mapping[int, FoundHeader],
    ) -> Mapping[int, int]:
        if owner is DirectoryOwner.BOOKIE:
            return {}
        if state is not None:
            return state.log_ends
        ends: dict[int, int] = {}
        if isinstance(mark, Mark) and mark.trailer and mark.trailer.log_end:
            ends[mark.trailer.log_end.log_id] = mark.trailer.log_end.offset
        for header in headers.values():
            origin = header.origin if isinstance(header, entrylog_format.LogHeader) else None
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
    """Raise `NotAStore` unless there is a store, or a bookie's directory."""
    for directory in (layout.journal, layout.ledgers):
        try:
            directory.names()
        except (FileNotFoundError, NotADirectoryError):
            raise NotAStore(layout.root.path, f"it has no {_directory_name(directory)}/current") from None


def _is_foreign(header: FoundHeader) -> bool:
    return isinstance(header, entrylog_format.LogHeader) and header.origin is None and header.version > 0


def _replay_from(rule: AuthorityRule, mark: LoadedMark, state: IndexState | None) -> JournalPosition:
    if rule.replay_from is ReplayFrom.FIRST_JOURNAL:
        return START
    if rule.replay_from is ReplayFrom.MARK and isinstance(mark, Mark):
        return mark.position
    return START if state is None else state.mark


def _directory_name(directory: Directory) -> str:
    return _directory_name_of(directory.path)


def _directory_name_of(path: str) -> str:
    return path.rstrip("/").split("/")[-2]
