"""Hands a store over to a bookie, which then finds exactly the content that the store shows.

A bookie knows no seals, no durable ends and no tombstones. It replays the journals from its mark on, scans
the logs, and keeps its ledger metadata in an index of its own. So it must find entry logs that hold what
counts, and a journal with keys, fences and explicit LACs. `Handover.run` has the order. Each step is durable
before the next:

    1. checkpoint   everything is in entry logs, index and metadata; no journal is needed any more
    2. strip        entry logs end where they count, have ledgers maps, and nothing of deleted ledgers
    3. restate      a new journal with the metadata of every ledger, in sealed groups, all proven durable
    4. index, mark  at the beginning of that journal, because neither side needs what is before it
    5. quarantine   the parts of older journals that never counted, which a bookie would take for records
    6. trim         all older journals
    7. bookie files lastId, the directories that a bookie's tools look for, and the cookies

After a crash in any step it is a store of ours with all its content: 1 and 2 change nothing that is shown, 3
repeats our metadata, and 4 is the end of a checkpoint. It can be opened as before. Another handover begins
with the first step.

The last group contains an entry too, one that is already in the logs. A bookie that replays only metadata
does not write it to its index, moves its mark after it all the same, and has lost it at the next start. With
one entry it writes everything.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.directory.layout import Layout, check_can_be_opened, is_created, load_cookie, store_id_of
from recovery.handover.metadata_journal import RestatedMetadata, in_groups, metadata_records
from recovery.handover.strip_logs import strip_logs
from recovery.opening.assembly import Platform
from recovery.opening.open_store import Opening
from recovery.replay.apply import check_finished
from recovery.replay.torn_tails import save_uncounted
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark import mark_of
from storage.config import StoreConfig
from storage.disk import cookie, cookie_format, filenames
from storage.disk.posix import PosixDirectory
from storage.entry.position import JournalPosition
from storage.errors import NotAStore
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.journal import journal_set
from storage.journal.writer import NOTHING
from storage.runtime.worker import ThreadWorker

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from recovery.handover.strip_logs import StrippedLogs
    from recovery.opening.open_store import RecoveredStore
    from storage.disk.cookie_format import Cookie
    from storage.disk.files import Directory
    from storage.engine import Engine
    from storage.entry.ledger_record import LedgerRecord
    from storage.index.port import IndexDirectory
    from storage.index.state import IndexState
    from storage.open_report import OpenReport, TornTail

_TOOLS_NEED = ("ledgers", "locations")
"""A bookie's two indexes. Its tools rename them, and fail if they are missing."""


@dataclass(frozen=True, slots=True)
class BookieAddress:
    """The values of the bookie's configuration for its cookie; `None` leaves a value as it is."""

    bookie_id: str | None = None
    journal_directory: str | None = None
    ledger_directory: str | None = None
    instance_id: str | None = None

    def on(self, found: Cookie) -> Cookie:
        """Return the cookie with this address. Another instance id does not change the store id."""
        if self == UNCHANGED:
            return found
        stamped = replace(found, layout_version=cookie_format.VERSION)
        if self.bookie_id is not None:
            stamped = replace(stamped, bookie_host=self.bookie_id)
        if self.journal_directory is not None:
            stamped = replace(stamped, journal_directories=(self.journal_directory,))
        if self.ledger_directory is not None:
            stamped = replace(stamped, ledger_directories=(self.ledger_directory,), index_directories=None)
        if self.instance_id not in (None, found.instance_id):
            # The logs carry the store id, and would be those of another store.
            stamped = replace(stamped, instance_id=self.instance_id, store_id=store_id_of(found).hex())
        return stamped


UNCHANGED = BookieAddress()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverReport:
    """The result of a handover."""

    opened: OpenReport
    cookie: Cookie
    facts: RestatedMetadata
    logs: StrippedLogs
    mark: JournalPosition
    """Where the bookie's replay begins: at the start of the only journal."""
    last_log: int | None
    saved: tuple[TornTail, ...]
    """Engine of journals and logs that did not count, now in the quarantine."""
    trimmed: tuple[str, ...]
    deleted: tuple[int, ...]
    """Deleted ledgers of which records may be left in damaged logs."""
    limbo: tuple[int, ...]
    """Ledgers of which entries may be missing; a bookie would say that the entries do not exist."""

    @property
    def findings(self) -> tuple[str, ...]:
        return (*self.opened.findings, *self.logs.findings)


def hand_over(
    path: str | os.PathLike[str],
    address: BookieAddress = UNCHANGED,
    config: StoreConfig = StoreConfig(),  # noqa: B008 - frozen
) -> HandoverReport:
    """Make the store at `path` a bookie's directory. The bookie is started after its tools made its index.

    It remains a store of ours with all its content. Raise as `open_store`, and if there is no store.
    """
    layout = Layout(PosixDirectory(path))
    place = LmdbIndexDirectory(layout.ledgers, Path(layout.ledgers.path), config.index_size_max)
    return Handover(layout, place, config, Platform(ThreadWorker), address).run()


class Handover:
    """One handover of one directory."""

    def __init__(
        self,
        layout: Layout,
        place: IndexDirectory,
        config: StoreConfig,
        platform: Platform,
        address: BookieAddress = UNCHANGED,
    ) -> None:
        self._layout = layout
        self._opening = Opening(layout, place, config, platform)
        self._config = config
        self._address = address

    def run(self) -> HandoverReport:
        """Do every step in its order. Raise what an opening raises; then it is a store of ours as before."""
        check_can_be_opened(self._layout)
        if not is_created(self._layout):
            raise NotAStore(self._layout.root.path, "there is nothing to hand over")
        with ExitStack() as held:
            recovered = self._opening.recover(held)
            cookies = self._cookies()
            _checkpoint(recovered.engine)
            rows = {row.ledger_id: row for row in recovered.index.rows()}
            logs = strip_logs(self._layout.ledgers, recovered.index, rows, self._layout.quarantine)
            facts, written = self._restate(recovered.engine)
            state = self._move_mark(recovered, written)
            saved = self._quarantine(rows)
            trimmed = self._trim(written[0])
            self._write_bookie_files(state, cookies)
        _, stamped = cookies[0]
        return HandoverReport(
            opened=recovered.report,
            cookie=stamped,
            facts=facts,
            logs=logs,
            mark=state.mark,
            last_log=state.last_log,
            saved=tuple(dict.fromkeys([*recovered.report.torn, *logs.saved, *saved])),
            trimmed=trimmed,
            deleted=tuple(one for one, row in rows.items() if row.tombstone is not None and logs.findings),
            limbo=tuple(one for one, row in rows.items() if row.in_limbo),
        )

    def _cookies(self) -> list[tuple[Directory, Cookie]]:
        """Return the new cookies. Raise before anything is changed if one cannot be written."""
        directories = (self._layout.journal, self._layout.ledgers)
        cookies = [(one, self._address.on(load_cookie(one))) for one in directories]
        for _, stamped in cookies:
            cookie_format.encode(stamped)
        return cookies

    # ── the journal ──────────────────────────────────────────────────────────────────────────────────

    def _restate(self, engine: Engine) -> tuple[RestatedMetadata, list[int]]:
        """Write the metadata of all ledgers to new journals; return what was written, and their ids."""
        facts = RestatedMetadata()
        groups = in_groups(metadata_records(engine, facts), self._config.group_size_max)
        durable_up_to = engine.journals.durable_up_to
        alignment = self._config.journal_alignment
        more = NOTHING.space(alignment)
        # Always a new journal, because nothing that a bookie would replay may be before its first group.
        first = next(groups, NOTHING)
        writer = engine.journals.roll(first.space(alignment, more))
        written = [writer.journal_id]
        for group in chain([first], groups):
            writer = engine.journals.with_room(group, more)
            if writer.journal_id not in written:
                written.append(writer.journal_id)
            writer.write(group, durable_up_to)
            durable_up_to = writer.sync()
        # An empty group proves the last one durable, so that an opening has nothing to carry over.
        writer.write(NOTHING, durable_up_to)
        writer.sync()
        return facts, written

    def _move_mark(self, recovered: RecoveredStore, written: Sequence[int]) -> IndexState:
        """Move the mark to the beginning of the new journal, in the index before it is in the file."""
        before = recovered.index.state()
        state = replace(
            before,
            generation=before.generation + 1,
            mark=JournalPosition(written[0], 0),
            rows_sequence=recovered.engine.metadata.sequence,
        )
        with recovered.index.change() as change:
            change.commit(state)
        lastmark.write_draft(self._layout.ledgers, mark_of(state, written[-1]))
        lastmark.publish(self._layout.ledgers)
        return state

    def _quarantine(self, rows: dict[int, LedgerRecord]) -> list[TornTail]:
        saved = list(save_uncounted(self._layout.journal, rows, self._layout.quarantine))
        # The name of the quarantine, before the trim, because these are the last copies.
        self._layout.root.sync()
        return saved

    def _trim(self, marked_id: int) -> tuple[str, ...]:
        trimmed = journal_set.trim(self._layout.journal, marked_id, 0)
        # A power cut must not bring one back, because a bookie's tools read also journals before the mark.
        self._layout.journal.sync()
        return tuple(trimmed)

    # ── other files of a bookie ─────────────────────────────────────────────────────────────────

    def _write_bookie_files(self, state: IndexState, cookies: Iterable[tuple[Directory, Cookie]]) -> None:
        ledgers = self._layout.ledgers
        # A bookie would keep the reserve for ever, because it does not know it.
        for name in (filenames.LAST_ID, filenames.RESERVE, filenames.OPENING_RESERVE):
            if name in ledgers.names():
                ledgers.remove(name)
        if state.last_log is not None:
            with ledgers.create(filenames.LAST_ID) as file:
                file.write(0, [f"{state.last_log:x}\n".encode()])
                file.sync()
        for name in _TOOLS_NEED:
            ledgers.directory(name).make()
        ledgers.sync()
        for directory, stamped in cookies:
            if stamped != load_cookie(directory):
                cookie.store(directory, stamped)


def _checkpoint(engine: Engine) -> None:
    """Make a checkpoint as a clean close does."""
    engine.committer.seal()
    engine.checkpointer.finish()
    check_finished(engine)
    engine.logs.seal()
