"""Puts the objects of a store together: the only place that names all of them."""

from __future__ import annotations

import secrets
import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from storage.capacity.guard import SpaceGuard, SpaceLimits
from storage.capacity.reserve import Reserve
from storage.checkpoint.checkpointer import Checkpointer
from storage.checkpoint.mark import LastMark, newest_named
from storage.checkpoint.reclaimer import Reclaimer
from storage.commit.committer import CommitLimits, Committer
from storage.commit.ledger_control import LedgerControl
from storage.commit.queue import new_lock
from storage.disk import filenames
from storage.engine import Engine
from storage.entrylog.log_set import EntryLogs
from storage.entrylog.open_logs import OpenEntryLogs
from storage.gc.collector import Collector
from storage.gc.compactor import Compactor
from storage.gc.usage import ContentCache, UsageSurvey
from storage.index.location_cache import LocationCache
from storage.index.visible import VisibleIndex
from storage.journal.journal_set import Journals, JournalShape, journal_ids, trim
from storage.ledgers.metadata import LedgerMetadata
from storage.ledgers.state import LedgerStates, truncated_end
from storage.memtable.table import Memtable, Slot, Tables
from storage.read.points import PointReader
from storage.read.ranges import RangeReader
from storage.runtime.store_state import StoreState
from storage.stats import index_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from recovery.directory.layout import Layout
    from recovery.opening.reconcile import Reconciled
    from recovery.replay.journals import Replay
    from storage.config import StoreConfig
    from storage.disk.files import Directory, ReadFile
    from storage.entry.ledger_record_table import LedgerRecordTable
    from storage.entry.position import JournalPosition
    from storage.index.port import Index
    from storage.runtime.worker import WorkerFactory


@dataclass(frozen=True, slots=True)
class Platform:
    """Threads, locks, random numbers and time, which a simulation replaces by its own."""

    new_worker: WorkerFactory
    new_lock: Callable[[], AbstractContextManager[object]] = new_lock
    new_salt: Callable[[], int] = lambda: secrets.randbits(64)
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex
    clock: Callable[[], float] = time.monotonic
    open_log: Callable[[Directory, str], ReadFile] = lambda directory, name: directory.open(name)
    """Opens the entry log of that name for reading."""
    close_unclosed: Callable[[Callable[[], None]], None] | None = None
    """Closes a store that is collected while open; `None` in simulations, which drop stores to kill them."""


def assemble(
    layout: Layout,
    config: StoreConfig,
    platform: Platform,
    store_id: bytes,
    reconciled: Reconciled,
    replay: Replay,
) -> Engine:
    """Return the engine of a store whose files agree, before anything was replayed into it."""
    index = reconciled.index
    state = index.state()
    store_state = StoreState(layout.root.path)
    last_mark = LastMark(layout.ledgers, reconciled.mark, platform.new_lock())
    space = _space_guard(layout, config, platform, store_state, last_mark)
    space.begin()
    slot = Slot(Tables(_first_table(state.mark, reconciled.rows.rows)))
    journals = _journals(layout, config, platform, reconciled, replay, last_mark)
    visible = VisibleIndex(index, platform.new_lock)
    cache = LocationCache(visible, config.index_cache_size_max)
    open_logs = OpenEntryLogs(partial(platform.open_log, layout.ledgers), platform.new_lock())
    reader = PointReader(slot, visible, cache, open_logs)
    metadata = LedgerMetadata(reconciled.rows, state, visible, cache, slot, platform.new_lock, space)
    metadata.hide_all_truncated()
    states = _ledger_states(platform, metadata, reader)
    limits = CommitLimits(config.group_size_max, config.memtable_size_max, config.throttle_timeout_s)
    committer = Committer(journals, slot, states, metadata, store_state, limits, space)
    logs = EntryLogs(layout.ledgers, store_id, config.entry_log_size_max, state.last_log)
    reclaimer = Reclaimer(
        layout.ledgers, store_id, logs, open_logs, index, visible, metadata, last_mark, space
    )
    checkpointer = Checkpointer(
        committer,
        slot,
        logs,
        index,
        metadata,
        last_mark,
        layout.journal,
        store_state,
        config.journal_max_backups,
        reclaimer,
        space,
    )
    compactor = Compactor(
        checkpointer, layout.ledgers, layout.journal, logs, index, visible, metadata, store_state, space
    )
    usage_survey = _usage_survey(layout, index, visible, metadata, checkpointer)
    collector = Collector(
        config,
        compactor,
        usage_survey,
        lambda: logs.in_use,
        checkpointer,
        space,
        committer.waiters,
        store_state,
        platform.clock,
    )
    return Engine(
        path=layout.root.path,
        root=layout.root,
        ledgers=layout.ledgers,
        config=config,
        store_state=store_state,
        space=space,
        slot=slot,
        states=states,
        journals=journals,
        committer=committer,
        logs=logs,
        checkpointer=checkpointer,
        compactor=compactor,
        collector=collector,
        index=index,
        usage_survey=usage_survey,
        reader=reader,
        metadata=metadata,
        control=LedgerControl(committer, states, metadata, space),
        range_reader=RangeReader(slot, cache, open_logs, reader),
    )


def _space_guard(
    layout: Layout, config: StoreConfig, platform: Platform, store_state: StoreState, last_mark: LastMark
) -> SpaceGuard:
    """Return the guard, which on a full disk gives up the journals that are kept only as backups."""
    return SpaceGuard(
        layout.ledgers,
        Reserve(layout.ledgers, filenames.RESERVE, platform.new_lock()),
        Reserve(layout.ledgers, filenames.OPENING_RESERVE, platform.new_lock()),
        space_limits(config),
        store_state,
        lambda: bool(trim(layout.journal, last_mark.position.journal_id, 0)),
        lambda: index_bytes(layout.ledgers),
        platform.new_lock(),
    )


def _journals(
    layout: Layout,
    config: StoreConfig,
    platform: Platform,
    reconciled: Reconciled,
    replay: Replay,
    last_mark: LastMark,
) -> Journals:
    """Return the set of journals. The next one gets a higher id than every journal that any file names."""
    named = (newest_named(reconciled.mark), replay.durable_up_to.journal_id)
    journals = Journals(
        layout.journal,
        JournalShape(config.journal_alignment, config.journal_size),
        max([*named, *journal_ids(layout.journal)]),
        platform.new_salt,
        platform.new_lock(),
        last_mark.announcing,
        replay.durable_up_to,
    )
    journals.state_metadata_sequence(reconciled.rows.sequence)
    return journals


def _ledger_states(platform: Platform, metadata: LedgerMetadata, reader: PointReader) -> LedgerStates:
    """Return the states of ledgers. The end of a ledger that is not in memory is read from the disk."""
    return LedgerStates(
        lambda ledger_id: truncated_end(
            metadata.of(ledger_id), reader.end(ledger_id, metadata.digester(ledger_id))
        ),
        metadata.of,
        platform.new_lock(),
    )


def _usage_survey(
    layout: Layout,
    index: Index,
    visible: VisibleIndex,
    metadata: LedgerMetadata,
    checkpointer: Checkpointer,
) -> Callable[[], UsageSurvey]:
    """Return a function that surveys the entry logs as they are after the last checkpoint."""
    contents = ContentCache()

    def survey() -> UsageSurvey:
        now = checkpointer.state
        return UsageSurvey(layout.ledgers, index, visible, metadata, now.log_ends, now.last_log, contents)

    return survey


def _first_table(mark: JournalPosition, rows: LedgerRecordTable) -> Memtable:
    """Return an empty table with the deletes after which no checkpoint has frozen a table yet."""
    table = Memtable(mark)
    for row in rows.unbounded_tombstones():
        table.put_row(row)
    return table


def space_limits(config: StoreConfig) -> SpaceLimits:
    """Return the limits that the settings state. By default, what a store needs at most at once is kept free:
    both tables in entry logs, and a journal."""
    min_free = config.space_min_free
    return SpaceLimits(
        2 * config.memtable_size_max + config.journal_size if min_free is None else min_free,
        min_free is not None,
        config.space_reserve,
        config.space_usage_max,
        config.space_usage_resume,
        config.space_usage_warn,
    )
