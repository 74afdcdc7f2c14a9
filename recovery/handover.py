"""Handing a store over to a bookie: what it then finds is what we show, and nothing else.

A bookie knows no seals, no durable ends and no tombstones; it replays the journals from its mark on, scans
the logs, and keeps what it knows of ledgers in an index of its own. So it must find entry logs that hold what
counts, and a journal that says the rest: keys, fences and explicit LACs. The order is `Handover.run`, and
each step is durable before the next:

    1. checkpoint   everything is in entry logs, index and rows: no journal is needed any more
    2. clean        entry logs end where they count, have their ledgers maps, and nothing of deleted ledgers
    3. restate      a new journal with the facts of every ledger, in sealed groups, vouched for
    4. index, mark  in front of that journal: what is before it is of no use now, to a bookie and to us
    5. quarantine   what of the older journals never counted: a bookie would take it for records
    6. trim         all of them
    7. furnish      lastId, the directories that a bookie's tools look for, and the cookies

Killed anywhere it is a store of ours, with everything in it: 1 and 2 change nothing that is shown, the facts
are what our rows say already, and 4 is a checkpoint's last two steps. Opened again it goes on as ever; handed
over again, it is done from the start.

The last group has an entry as well, one that is in the logs already. A bookie that has only facts to replay
writes none of them into its index, moves its mark behind them all the same, and has lost them when it is
started the next time; one entry, and it writes down everything.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from recovery import founding
from recovery.cleaning import clean_logs
from recovery.founding import Layout
from recovery.opening import Opening, Surroundings
from recovery.replaying import check_finished
from recovery.restating import Facts, in_groups, records_of
from recovery.torn import save_uncounted
from storage import cookie, filenames, journals, lastmark
from storage.codec import cookie as cookie_codec
from storage.config import StoreConfig
from storage.errors import NotAStore
from storage.journal_writer import NOTHING
from storage.lastmark import mark_of
from storage.lmdb_place import LmdbPlace
from storage.position import JournalPosition
from storage.posix_files import PosixDirectory
from storage.worker import ThreadWorker

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from recovery.cleaning import CleanedLogs
    from recovery.opening import Recovered
    from storage.codec.cookie import Cookie
    from storage.files import Directory
    from storage.index import IndexPlace
    from storage.index_state import IndexState
    from storage.parts import Parts
    from storage.report import OpenReport, TornTail
    from storage.row import LedgerRow

_TOOLS_NEED = ("ledgers", "locations")
"""A bookie's two indexes: its tools rename what is there, and fail where nothing is."""


@dataclass(frozen=True, slots=True)
class Address:
    """What the cookie is to say: what the configuration of the bookie says. `None`: as it is."""

    bookie_id: str | None = None
    journal_directory: str | None = None
    ledger_directory: str | None = None
    instance_id: str | None = None

    def on(self, found: Cookie) -> Cookie:
        """The cookie with this address. Another instance id leaves the store id what it was."""
        if self == AS_IT_IS:
            return found
        stamped = replace(found, layout_version=cookie_codec.VERSION)
        if self.bookie_id is not None:
            stamped = replace(stamped, bookie_host=self.bookie_id)
        if self.journal_directory is not None:
            stamped = replace(stamped, journal_directories=(self.journal_directory,))
        if self.ledger_directory is not None:
            stamped = replace(stamped, ledger_directories=(self.ledger_directory,), index_directories=None)
        if self.instance_id not in (None, found.instance_id):
            # Or the logs that carry it would be another store's.
            stamped = replace(stamped, instance_id=self.instance_id, store_id=founding.id_of(found).hex())
        return stamped


AS_IT_IS = Address()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """What a bookie will find, and what it will not know."""

    opened: OpenReport
    cookie: Cookie
    facts: Facts
    logs: CleanedLogs
    mark: JournalPosition
    """From where the bookie replays: the beginning of the one journal that there is."""
    last_log: int | None
    saved: tuple[TornTail, ...]
    """What of journals and logs did not count, and is in the quarantine."""
    trimmed: tuple[str, ...]
    deleted: tuple[int, ...]
    """Deleted ledgers of which records may be left where they could not be told apart."""
    limbo: tuple[int, ...]
    """Ledgers of which entries may be missing: a bookie would say that there are none."""

    @property
    def findings(self) -> tuple[str, ...]:
        return (*self.opened.findings, *self.logs.findings)


def hand_over(
    path: str | os.PathLike[str],
    address: Address = AS_IT_IS,
    config: StoreConfig = StoreConfig(),  # noqa: B008 - frozen
) -> HandedOver:
    """Makes the store at `path` a directory for a bookie, which is to be started when its tools were over it.

    It stays a store of ours, with all that was in it. Raises as `open_store`, and where there is no store.
    """
    layout = Layout(PosixDirectory(path))
    place = LmdbPlace(layout.ledgers, Path(layout.ledgers.path), config.index_size_max)
    return Handover(layout, place, config, Surroundings(ThreadWorker), address).run()


class Handover:
    """One handing over of one directory."""

    def __init__(
        self,
        layout: Layout,
        place: IndexPlace,
        config: StoreConfig,
        surroundings: Surroundings,
        address: Address = AS_IT_IS,
    ) -> None:
        self._layout = layout
        self._opening = Opening(layout, place, config, surroundings)
        self._config = config
        self._address = address

    def run(self) -> HandedOver:
        """Every step, in its order. Raises what an opening raises, and then it is a store of ours."""
        founding.check_may_be_a_store(self._layout)
        if not founding.is_complete(self._layout):
            raise NotAStore(self._layout.root.path, "there is nothing to hand over")
        with ExitStack() as held:
            recovered = self._opening.recover(held)
            cookies = self._cookies()
            _checkpoint(recovered.parts)
            rows = {row.ledger_id: row for row in recovered.index.rows()}
            logs = clean_logs(self._layout.ledgers, recovered.index, rows, self._layout.quarantine)
            facts, written = self._restate(recovered.parts)
            state = self._move_mark(recovered, written)
            saved = self._quarantine(rows)
            trimmed = self._trim(written[0])
            self._furnish(state, cookies)
        _, stamped = cookies[0]
        return HandedOver(
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
        """The cookies as they will be; raises before anything is changed if one cannot be written."""
        directories = (self._layout.journal, self._layout.ledgers)
        cookies = [(one, self._address.on(founding.load_cookie(one))) for one in directories]
        for _, stamped in cookies:
            cookie_codec.encode(stamped)
        return cookies

    # ── the journal ──────────────────────────────────────────────────────────────────────────────────

    def _restate(self, parts: Parts) -> tuple[Facts, list[int]]:
        """A new journal with what is known of all ledgers; the ids of the journals that it took."""
        facts = Facts()
        groups = in_groups(records_of(parts, facts), self._config.group_size_max)
        durable_up_to = parts.journals.durable_up_to
        alignment = self._config.journal_alignment
        more = NOTHING.space(alignment)
        # Always another journal: in front of its first group nothing may stand that a bookie would replay.
        first = next(groups, NOTHING)
        writer = parts.journals.roll(first.space(alignment, more))
        written = [writer.journal_id]
        for group in chain([first], groups):
            writer = parts.journals.with_room(group, more)
            if writer.journal_id not in written:
                written.append(writer.journal_id)
            writer.write(group, durable_up_to)
            durable_up_to = writer.sync()
        # Vouches for the last one: an opening has nothing to carry over.
        writer.write(NOTHING, durable_up_to)
        writer.sync()
        return facts, written

    def _move_mark(self, recovered: Recovered, written: Sequence[int]) -> IndexState:
        """The mark at the beginning of the new journal, in the index before it is in the file."""
        before = recovered.index.state()
        state = replace(
            before,
            generation=before.generation + 1,
            mark=JournalPosition(written[0], 0),
            rows_sequence=recovered.parts.registry.sequence,
        )
        with recovered.index.change() as change:
            change.commit(state)
        lastmark.write_draft(self._layout.ledgers, mark_of(state, written[-1]))
        lastmark.publish(self._layout.ledgers)
        return state

    def _quarantine(self, rows: dict[int, LedgerRow]) -> list[TornTail]:
        saved = list(save_uncounted(self._layout.journal, rows, self._layout.quarantine))
        # The quarantine's own name. Before the trim: these are the last copies.
        self._layout.root.sync()
        return saved

    def _trim(self, marked_id: int) -> tuple[str, ...]:
        trimmed = journals.trim(self._layout.journal, marked_id, 0)
        # A power cut must not bring one back: a bookie's tools read all journals, not those from its mark on.
        self._layout.journal.sync()
        return tuple(trimmed)

    # ── what else a bookie looks for ─────────────────────────────────────────────────────────────────

    def _furnish(self, state: IndexState, cookies: Iterable[tuple[Directory, Cookie]]) -> None:
        ledgers = self._layout.ledgers
        if filenames.LAST_ID in ledgers.names():
            ledgers.remove(filenames.LAST_ID)
        if state.last_log is not None:
            with ledgers.create(filenames.LAST_ID) as file:
                file.write(0, [f"{state.last_log:x}\n".encode()])
                file.sync()
        for name in _TOOLS_NEED:
            ledgers.directory(name).make()
        ledgers.sync()
        for directory, stamped in cookies:
            if stamped != founding.load_cookie(directory):
                cookie.store(directory, stamped)


def _checkpoint(parts: Parts) -> None:
    """As a store that is closed in order does it."""
    parts.committer.seal()
    parts.checkpointer.finish()
    check_finished(parts)
    parts.logs.seal()
