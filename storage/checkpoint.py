"""The checkpoint: a frozen table moves into entry log and index, and the mark behind it.

The order is `Checkpointer._checkpoint`, line by line; every line is durable before the next begins. Until
the mark is stored the journals hold everything, and the table stays first in line: an attempt that fails is
made again with the same table and new files. A file that has met an error is never written again.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass
from sys import getrefcount
from typing import TYPE_CHECKING

from storage import journals
from storage.codec import piece
from storage.index_state import IndexState
from storage.turnstile import Signal
from storage.worker import AT_ONCE

if TYPE_CHECKING:
    from array import array
    from collections.abc import Generator, Iterator, Sequence

    from storage.codec.piece import Piece
    from storage.commit import Committer
    from storage.entry_logs import EntryLogs
    from storage.files import Directory
    from storage.index import Index
    from storage.lastmark import LastMark
    from storage.latch import Latch
    from storage.location_cache import LocationCache
    from storage.memtable import Memtable, Slot
    from storage.registry import Registry
    from storage.row import LedgerRow
    from storage.worker import Pause

SYNC_STEP = 1 << 20
"""Bytes between two syncs of an entry log: a single large one would make the journal's syncs wait for it."""

_ALONE = 64 << 20
"""The same where nobody adds meanwhile, so that nothing waits."""

_LOG = logging.getLogger(__name__)
_WEIGHT_MAX = 1024  # of a step, in entries: for so long others wait for the interpreter
_WEIGHT_OF_A_RUN = 32
_OURS_ALONE = 2  # a variable, and the call that asks
_ATTEMPTS = 3
_RETRY_S = 1.0
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class Places:
    """Where a run of entries of one ledger lies."""

    ledger_id: int
    entry_ids: Sequence[int]
    locations: array[int]


class Checkpointer:
    """Does one checkpoint at a time, in steps; between two of them adds go on."""

    def __init__(
        self,
        committer: Committer,
        slot: Slot,
        logs: EntryLogs,
        index: Index,
        registry: Registry,
        cache: LocationCache,
        last_mark: LastMark,
        journal_directory: Directory,
        latch: Latch,
        journal_backups: int,
    ) -> None:
        self.state = index.state()
        self.done = Signal()
        """After each checkpoint, and when there will be no more."""
        self.hindrance: OSError | None = None
        """Why the checkpoint under way cannot go on for now: there is no space."""
        self._requested = 0
        self._finished = 0
        self._answers = 0
        """Who has asked up to here is answered by the checkpoint under way."""
        self._attempts = 0
        self._sync_step = SYNC_STEP
        self._committer = committer
        self._slot = slot
        self._logs = logs
        self._index = index
        self._registry = registry
        self._cache = cache
        self._last_mark = last_mark
        self._journal_directory = journal_directory
        self._latch = latch
        self._journal_backups = journal_backups
        self._running: Iterator[Pause] | None = None

    @property
    def needs_turn(self) -> bool:
        """Whether the next step waits for a turn, to have a table frozen."""
        return self._running is None and self._slot.tables.frozen is None and self._requested > self._finished

    # ── asking for one ───────────────────────────────────────────────────────────────────────────────

    def request(self) -> int:
        """Asks that everything added so far be checkpointed; the number to wait for."""
        self._requested += 1
        return self._requested

    def wait_for(self, number: int) -> None:
        """Returns when that checkpoint is done, or none will be for now: see `hindrance`."""
        self.done.wait_for(
            lambda: self._finished >= number or self._latch.has_ended or self.hindrance is not None
        )

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> Pause:
        """Does a little, and says when to go on."""
        if self._latch.failure is not None or (self._running is None and not self._begin()):
            self.done.notify()
            return None
        assert self._running is not None
        try:
            return next(self._running)
        except StopIteration:
            self._end()
            return AT_ONCE
        except BaseException as error:
            # Of an index, a directory or a mark that half exists nobody knows what is durable.
            self._latch.fail(error)
            self.done.notify()
            raise

    def _begin(self) -> bool:
        """Whether there is a table to write; a request alone freezes one."""
        requested = self._requested
        if self._slot.tables.frozen is None:
            # As it was before the table is frozen: who asks behind that may have added something behind it.
            # And of a table that was frozen already nobody knows who has asked before.
            self._answers = requested
            if self.needs_turn:
                self._committer.freeze()
        frozen = self._slot.tables.frozen
        if frozen is None:
            self._finished = self._answers  # nothing was added before
            return False
        self._running = self._checkpoint(frozen)
        return True

    def _end(self) -> None:
        self._running = None
        self._attempts = 0
        self.hindrance = None
        self._finished = self._answers
        self.done.notify()

    def finish(self) -> None:
        """Checkpoints everything that was added, in the calling thread, unless the disk is full.

        For who opens or closes the store: nothing is added meanwhile.
        """
        self.request()
        self._sync_step = _ALONE
        while self.step() == AT_ONCE:
            pass
        self._sync_step = SYNC_STEP

    # ── the order ────────────────────────────────────────────────────────────────────────────────────

    def _checkpoint(self, frozen: Memtable) -> Iterator[Pause]:
        # 1. Entry logs, data and then names. Before the index: it must not place an entry where none may be.
        places = yield from self._write_logs(frozen)
        self._logs.sync_names()
        # 2. What has changed of the ledgers. Before the index: it is made again from them when it is lost.
        rows = yield from self._write_rows(frozen)
        # 3. One change of the index. Before the mark: behind it the journals no longer speak for the entries.
        yield from self._commit_index(frozen, places, rows)
        # 4. The mark. Before the trim: a power cut may bring the old one back, and it needs its journals.
        yield from self._move_mark()
        # 5. Readers look into the index from now on, and find everything there.
        with self._registry.committing:
            self._cache.forget({one.ledger_id for one in places})
        self._committer.thaw()
        yield AT_ONCE
        # 6. The journals before the mark are of no more use.
        self._trim()
        remains = frozen.remains()
        del frozen
        yield from _let_go(remains)

    def _trim(self) -> None:
        try:
            journals.trim(self._journal_directory, self.state.mark.journal_id, self._journal_backups)
        except OSError as error:
            # A journal that stays costs space and nothing else; the next checkpoint tries again.
            _LOG.warning("journals before %s were not removed: %s", self.state.mark, error)

    def _write_logs(self, frozen: Memtable) -> Generator[Pause, None, list[Places]]:
        while True:
            try:
                return (yield from self._write_sorted(frozen))
            except OSError as error:
                # The same table goes to a new log: of this one nobody knows what a second sync would prove.
                self._logs.abandon()
                if error.errno in _NO_SPACE:
                    # Or each attempt would eat the space that the next one needs.
                    self._logs.discard()
                yield self._pause_after(error)

    def _write_sorted(self, frozen: Memtable) -> Generator[Pause, None, list[Places]]:
        places = []
        self._logs.begin(self.state)
        for pieces in _steps(frozen):
            for one, locations in zip(pieces, self._logs.append(pieces), strict=True):
                places.append(Places(one.ledger_id, one.ids, locations))
            if self._logs.unsynced >= self._sync_step:
                self._logs.sync()
            yield AT_ONCE
        self._logs.sync()
        return places

    def _write_rows(self, frozen: Memtable) -> Generator[Pause, None, list[LedgerRow]]:
        while True:
            try:
                return self._registry.write_down(frozen, self.state)
            except OSError as error:
                if self._registry.is_lost:
                    raise
                yield self._pause_after(error)

    def _next_state(self, frozen: Memtable) -> IndexState:
        return IndexState(
            generation=self.state.generation + 1,
            mark=max(self.state.mark, frozen.covers_until),
            last_log=self._logs.newest_log,
            log_ends={**self.state.log_ends, **self._logs.ends},
            rows_sequence=self._registry.sequence,
            is_whole=self.state.is_whole,
        )

    def _commit_index(
        self, frozen: Memtable, places: Sequence[Places], rows: Sequence[LedgerRow]
    ) -> Iterator[Pause]:
        state = self._next_state(frozen)
        while self.state != state:
            try:
                places = [one for one in places if _is_there(frozen, one)]
                yield from self._commit_once(frozen, places, rows, state)
            except OSError as error:
                # Another try only where the first has certainly left nothing; an index does not latch itself.
                if error.errno not in _NO_SPACE or self._index.state() != self.state:
                    raise
                yield self._pause_after(error)

    def _commit_once(
        self, frozen: Memtable, places: Sequence[Places], rows: Sequence[LedgerRow], state: IndexState
    ) -> Iterator[Pause]:
        """Commits, unless a ledger among these was deleted meanwhile: its places would bring it back."""
        with self._index.change() as change:
            for one in places:
                change.put(one.ledger_id, one.entry_ids, one.locations)
                yield AT_ONCE
            with self._registry.committing:
                if all(_is_there(frozen, one) for one in places):
                    change.put_rows(self._registry.still_standing(rows))
                    change.commit(state)
                    self.state = state

    def _move_mark(self) -> Iterator[Pause]:
        while (error := self._last_mark.move(self.state)) is not None:
            yield self._pause_after(error)

    def _pause_after(self, error: OSError) -> Pause:
        """How long to wait before the next attempt; raises when there have been enough."""
        if error.errno in _NO_SPACE:
            self.hindrance = error
            self.done.notify()
            return _RETRY_S
        self._attempts += 1
        if self._attempts >= _ATTEMPTS:
            raise error
        return AT_ONCE


def _let_go(runs: list[list[bytes]]) -> Iterator[Pause]:
    """Frees what nobody reads any more, some at a time: all of it in one go would be ten milliseconds."""
    left = _WEIGHT_MAX
    while runs:
        run = runs.pop()
        # A reader may still have it: then who lets go of it last frees it.
        while run and getrefcount(run) == _OURS_ALONE:
            left -= len(run[-_WEIGHT_MAX:])
            del run[-_WEIGHT_MAX:]
            if left <= 0:
                yield AT_ONCE
                left = _WEIGHT_MAX


def _is_there(frozen: Memtable, places: Places) -> bool:
    """Whether the ledger has not been deleted since the table was frozen."""
    return frozen.last_id(places.ledger_id) is not None


def _steps(frozen: Memtable) -> Iterator[list[Piece]]:
    """The table's pieces, as many as one step writes: of many small ledgers those of some together."""
    pieces: list[Piece] = []
    size = weight = 0
    for ledger_id in frozen.ledgers():
        for one in frozen.pieces(ledger_id):
            size, weight = size + one.size, weight + _weight(one.ids)
            if pieces and (size > piece.SIZE_MAX or weight > _WEIGHT_MAX):
                yield pieces
                pieces, size, weight = [], one.size, _weight(one.ids)
            pieces.append(one)
    if pieces:
        yield pieces


def _weight(ids: Sequence[int]) -> int:
    """What entries of one ledger cost a step, in entries."""
    return _WEIGHT_OF_A_RUN + len(ids)
