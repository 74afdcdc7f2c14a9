"""Handing a store over to a bookie: what it then finds is what we show, and nothing else.

A bookie knows no seals, no durable ends and no tombstones; it replays the journals from its mark on, scans the
logs, and keeps what it knows of ledgers in an index of its own. So in front of it there must be entry logs
that hold what counts, and one journal that says the rest: keys, fences and explicit LACs. The order is
`Handover.run`, and each step is durable before the next:

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
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from recovery import founding
from recovery.cleaning import clean_logs
from recovery.opening import Opening
from recovery.replaying import check_finished
from recovery.torn import save_uncounted
from storage import cookie, filenames, journals, lastmark
from storage.checkpoint import mark_of
from storage.codec import cookie as cookie_codec
from storage.codec import journal as journal_codec
from storage.errors import EntryUnreadable, NotAStore
from storage.grouping import size_of
from storage.journal_writer import NOTHING, Group
from storage.position import JournalPosition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.cleaning import CleanedLogs
    from recovery.founding import Layout
    from recovery.opening import Recovered, Surroundings
    from storage.codec.cookie import Cookie
    from storage.config import StoreConfig
    from storage.files import Directory
    from storage.index import IndexPlace
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
        stamped = replace(found, layout_version=cookie_codec.VERSION)
        if self.bookie_id is not None:
            stamped = replace(stamped, bookie_host=self.bookie_id)
        if self.journal_directory is not None:
            stamped = replace(stamped, journal_directories=(self.journal_directory,))
        if self.ledger_directory is not None:
            stamped = replace(stamped, ledger_directories=(self.ledger_directory,), index_directories=None)
        if self.instance_id is not None:
            # Or the logs that carry it would be another store's.
            stamped = replace(stamped, instance_id=self.instance_id, store_id=founding.id_of(found).hex())
        return stamped


AS_IT_IS = Address()


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What a bookie will find, and what it will not know."""

    opened: OpenReport
    cookie: Cookie
    facts: Facts
    logs: CleanedLogs
    mark: JournalPosition
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


@dataclass(slots=True)
class Facts:
    """What the new journal says of the ledgers."""

    ledgers: int = 0
    keys: int = 0
    fences: int = 0
    explicit_lacs: int = 0
    unproven: list[int] = field(default_factory=list)
    """Ledgers whose key nobody knows: no record of theirs makes a bookie know the ledger."""
    restated: tuple[int, int] | None = None
    """The entry that is written again, ledger and id; `None`: there is none that can be read."""

    @property
    def make_an_index(self) -> bool:
        """Whether a bookie with an empty index of ledgers knows all of them when it has replayed this.

        Then the one that its tool makes, in which each ledger is fenced and none has a key, is of no use.
        """
        return not self.ledgers or not (self.unproven or self.restated is None)


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
            mark = self._move_mark(recovered, written)
            saved = self._quarantine(rows, mark)
            trimmed = self._trim(mark)
            self._furnish(recovered, cookies)
        return HandedOver(
            recovered.report,
            cookies[0][1],
            facts,
            logs,
            mark,
            (*recovered.report.torn, *logs.saved, *saved),
            trimmed,
            tuple(row.ledger_id for row in rows.values() if row.tombstone is not None and logs.findings),
            tuple(row.ledger_id for row in rows.values() if row.in_limbo),
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
        groups = _in_groups(_records(parts, facts), self._config.group_size_max)
        durable_up_to = parts.committer.durable_up_to
        # Always another journal: in front of its first group nothing may stand that a bookie would replay.
        first = next(groups, NOTHING)
        writer = parts.journals.roll(first.space(self._config.journal_alignment))
        written = [writer.journal_id]
        for group in chain([first], groups, [NOTHING]):
            # The last, empty one vouches for the one before it: an opening has nothing to carry over.
            writer = parts.journals.with_room(group)
            writer.write(group, durable_up_to)
            durable_up_to = writer.sync()
            if writer.journal_id not in written:
                written.append(writer.journal_id)
        return facts, written

    def _move_mark(self, recovered: Recovered, written: Sequence[int]) -> JournalPosition:
        """The mark at the beginning of the new journal, in the index before it is in the file."""
        mark = JournalPosition(written[0], 0)
        index = recovered.index
        state = index.state()
        sequence = recovered.parts.registry.sequence
        state = replace(state, generation=state.generation + 1, mark=mark, rows_sequence=sequence)
        with index.change() as change:
            change.commit(state)
        lastmark.write_draft(self._layout.ledgers, mark_of(state, written[-1]))
        lastmark.publish(self._layout.ledgers)
        return mark

    def _quarantine(self, rows: dict[int, LedgerRow], mark: JournalPosition) -> list[TornTail]:
        saved = [
            tail
            for tail in save_uncounted(self._layout.journal, rows, self._layout.quarantine)
            if _journal_id(tail) < mark.journal_id
        ]
        # The quarantine's own name. Before the trim: these are the last copies.
        self._layout.root.sync()
        return saved

    def _trim(self, mark: JournalPosition) -> tuple[str, ...]:
        trimmed = journals.trim(self._layout.journal, mark.journal_id, 0)
        # A power cut must not bring one back: a bookie's tools read all journals, not those from its mark on.
        self._layout.journal.sync()
        return tuple(trimmed)

    # ── what else a bookie looks for ─────────────────────────────────────────────────────────────────

    def _furnish(self, recovered: Recovered, cookies: Iterable[tuple[Directory, Cookie]]) -> None:
        ledgers = self._layout.ledgers
        last_log = recovered.index.state().last_log
        if filenames.LAST_ID in ledgers.names():
            ledgers.remove(filenames.LAST_ID)
        if last_log is not None:
            with ledgers.create(filenames.LAST_ID) as file:
                file.write(0, [f"{last_log:x}\n".encode()])
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


def _journal_id(tail: TornTail) -> int:
    return filenames.parse(tail.file).number or 0


# ── the facts ────────────────────────────────────────────────────────────────────────────────────────────


def _records(parts: Parts, facts: Facts) -> Iterator[list[bytes]]:
    """The records of each ledger, its key in front: without it a bookie skips the others."""
    for ledger_id in sorted({*parts.reading.ledgers(), *parts.registry.existing()}):
        row = parts.registry.of(ledger_id)
        facts.ledgers += 1
        records = []
        if row.master_key is None:
            facts.unproven.append(ledger_id)
        else:
            facts.keys += 1
            records.append(journal_codec.encode_ledger_key(ledger_id, row.master_key))
        if row.fenced:
            facts.fences += 1
            records.append(journal_codec.encode_fence(ledger_id))
        if row.explicit_lac is not None:
            facts.explicit_lacs += 1
            records.append(journal_codec.encode_explicit_lac(ledger_id, row.explicit_lac))
        if facts.restated is None and row.master_key is not None:
            records += _an_entry(parts, ledger_id, facts)
        if records:
            yield records


def _an_entry(parts: Parts, ledger_id: int, facts: Facts) -> list[bytes]:
    """The record of the ledger's last entry, if it has one that can be read."""
    last_id = parts.reading.last_id(ledger_id)
    if last_id is None:
        return []
    try:
        data = parts.reading.data(ledger_id, last_id, parts.registry.digester(ledger_id))
    except EntryUnreadable:
        return []
    if data is None:
        return []
    facts.restated = ledger_id, last_id
    return [journal_codec.encode_record(data)]


def _in_groups(records: Iterable[list[bytes]], size_max: int) -> Iterator[Group]:
    """The records of ledgers in groups of at most that size, those of one ledger always in one."""
    members: list[bytes] = []
    size = 0
    for some in records:
        more = size_of(some)
        if members and size + more > size_max:
            yield Group(members, len(members), size)
            members, size = [], 0
        members += some
        size += more
    if members:
        yield Group(members, len(members), size)
