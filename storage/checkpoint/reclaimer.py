"""The orders in which space is reclaimed: a slice of moved records, a removal of logs, a purge of tombstones.

`Checkpointer`, the runner of checkpoints, runs each order as it runs a checkpoint, and never beside one. So
there is one stream of entry logs, in which a later copy of an entry is a newer one. Every step is durable
before the next begins. `storage.gc` decides which records are moved and which logs are removed. Each order
checks the decision against the index at the moment of the change.

Each order is a generator that ends with the new state of the index and a result. It raises only if it is
unknown what is durable; then the store stops. Any other error is in the result: nothing was changed that a
later attempt would have to undo.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from storage.capacity.guard import Need
from storage.disk import filenames
from storage.entry.position import LogPosition
from storage.entry.record_chunk import of_records
from storage.entrylog import lineage as lineage_file
from storage.entrylog.lineage_format import Lineage
from storage.entrylog.log_set import age_of
from storage.errors import NO_SPACE
from storage.runtime.events import LOG
from storage.runtime.worker import AT_ONCE, yield_gil

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Collection, Generator, Iterator, Sequence

    from storage.capacity.guard import SpaceGuard
    from storage.checkpoint.mark import LastMark
    from storage.disk.files import Directory
    from storage.entry.record_chunk import RecordChunk
    from storage.entrylog.log_set import EntryLogs
    from storage.entrylog.open_logs import OpenEntryLogs
    from storage.index.port import Index, IndexReader
    from storage.index.state import IndexState
    from storage.ledgers.metadata import LedgerMetadata
    from storage.runtime.worker import Pause

T = TypeVar("T")

SYNC_STEP = 1 << 20
"""Bytes between two syncs of an entry log, because the journal's syncs would wait for a single large one."""

_STEP_SIZE = 128 << 10
"""Bytes that one step of a slice moves. A small chunk costs less than a step."""

_RETRY_S = 1.0


class SliceChunk(NamedTuple):
    """Some verified records of one ledger, and where they were found."""

    records: RecordChunk
    before: Sequence[int]
    """The packed location of each record."""
    looked_up_at: int
    """How many checkpoints had ended before the index was asked for these locations."""


@dataclass(frozen=True, slots=True)
class SliceResult:
    """The end of a slice."""

    entries: int = 0
    """The entries that were moved. A record that the index did not point at any more is not one of them."""
    size: int = 0
    """The bytes of their records."""
    handled: int = 0
    """How many chunks of the slice need not be moved any more. Fewer than all if a checkpoint was due."""
    error: OSError | None = None
    """The error because of which nothing was moved."""


@dataclass(frozen=True, slots=True)
class RollResult:
    """The end of a roll, which meets no error: a log that cannot be sealed is scanned instead of believed."""

    error: OSError | None = None


@dataclass(frozen=True, slots=True)
class RemovalResult:
    """The end of a removal."""

    removed: tuple[int, ...] = ()
    """The logs that are gone: the store needs them no more, and their files are removed, or will be."""
    error: OSError | None = None
    """The error because of which nothing was removed, or a file could not be."""


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """The end of a purge of tombstones."""

    purged: int = 0
    error: OSError | None = None


@dataclass(slots=True, eq=False)
class Reclamation(Generic[T]):
    """An order that waits for the runner of checkpoints, is run by it, or is over."""

    order: Callable[[IndexState], Generator[Pause, None, tuple[IndexState, T]]]
    result: T | None = None
    """Set by the runner before `is_over`."""
    is_over: bool = False
    """Set by the runner, read by any thread without a lock."""


class Reclaimer:
    """The orders in which space is reclaimed. Only the runner of checkpoints calls it."""

    def __init__(
        self,
        directory: Directory,
        store_id: bytes,
        logs: EntryLogs,
        open_logs: OpenEntryLogs,
        index: Index,
        visible: IndexReader,
        metadata: LedgerMetadata,
        last_mark: LastMark,
        space: SpaceGuard,
    ) -> None:
        """`visible` is the index without the locations of deleted ledgers."""
        self._directory = directory
        self._store_id = store_id
        self._logs = logs
        self._open_logs = open_logs
        self._index = index
        self._visible = visible
        self._metadata = metadata
        self._last_mark = last_mark
        self._space = space
        self.step_size = _STEP_SIZE
        """Bytes of small chunks that one step of a slice moves."""
        self._unlinked: frozenset[int] = frozenset()
        """Removed logs whose unlink is durable. The next change of the index forgets them."""

    def still_gone(self, state: IndexState) -> tuple[int, ...]:
        """Return the removed logs that a power cut may bring back, for the next state of the index."""
        return tuple(one for one in state.gone if one not in self._unlinked)

    # ── a slice ──────────────────────────────────────────────────────────────────────────────────────

    def move(
        self,
        state: IndexState,
        chunks: Sequence[SliceChunk],
        checkpoints: int,
        must_end: Callable[[], bool],
    ) -> Generator[Pause, None, tuple[IndexState, SliceResult]]:
        """Copy records into the log in use, and let the index point at the copies.

        `checkpoints` is the number of checkpoints that have ended. `must_end` says that another one is due.
        Then the records that were appended are committed, and the others are left.
        """
        # 1. Append the records that the index points at now. If a checkpoint has ended since they were read,
        #    look them up again, because a copy that is written after an overwrite would win when the index is
        #    rebuilt. No checkpoint runs between the look-up that counts and the commit.
        self._logs.begin(state.generation + 1, state.log_end)
        moved: list[tuple[SliceChunk, array[int]]] = []
        handled = 0
        try:
            for some in _by_step(chunks, self.step_size):
                if must_end():
                    break
                handled += len(some)
                live = [part for one in some for part in self._still_live(one, checkpoints)]
                # 2. The log, first the data and then the names. Before the index, because a location must
                #    never point to an entry that a crash can take away.
                moved += zip(live, self._logs.append([part.records for part in live]), strict=True)
                if self._logs.unsynced >= SYNC_STEP:
                    self._logs.sync()
                yield AT_ONCE
            if moved:
                self._logs.sync()
        except OSError as error:
            self._give_up()
            return state, SliceResult(error=error)
        if not moved:
            return state, SliceResult(handled=handled)
        self._logs.sync_names()
        # 3. The index, in one transaction that compares and sets: an entry that was deleted meanwhile is left
        #    alone. The mark's journal position and the metadata stay as they are.
        after = replace(
            state,
            generation=state.generation + 1,
            last_log=self._logs.newest_log,
            log_ends={**state.log_ends, **self._logs.ends},
            gone=self.still_gone(state),
        )
        with self._index.change() as change:
            for one, locations in moved:
                change.move(one.records.ledger_id, one.records.ids, one.before, locations)
                yield_gil()
            refusal = self._committed(lambda: change.commit(after), state)
        if refusal is not None:
            # Not left in the log in use, because the next checkpoint would commit the copies with its own
            # records, after the bound of a tombstone that was set in between.
            self._give_up()
            return state, SliceResult(error=refusal)
        # 4. Memory: from now on readers look up the new locations.
        self._metadata.forget_locations({one.records.ledger_id for one, _ in moved})
        # 5. The mark, after each slice. A checkpoint bounds tombstones by the end of the logs. If only the
        #    index knew that end and were lost, the id of the log would be given out again, and the records of
        #    the new log before the bound would be taken for dead.
        yield from self._advance_mark(after)
        entries = sum(len(one.before) for one, _ in moved)
        return after, SliceResult(entries, sum(one.records.size for one, _ in moved), handled)

    def _still_live(self, one: SliceChunk, checkpoints: int) -> list[SliceChunk]:
        """Return the records that the index points at."""
        if one.looked_up_at == checkpoints:
            return [one]  # only checkpoints let the index point at other copies
        ids, before = one.records.ids, one.before
        found = locations_of(self._visible, one.records.ledger_id, ids)
        if found == list(before):
            return [one]
        kept = [number for number, place in enumerate(before) if found[number] == place]
        if not kept:
            return []
        records = one.records.records()
        live: list[SliceChunk] = []
        chunks = of_records(one.records.ledger_id, [ids[at] for at in kept], [records[at] for at in kept])
        for chunk in chunks:
            places = [before[at] for at in kept[: len(chunk.ids)]]
            del kept[: len(chunk.ids)]
            live.append(SliceChunk(chunk, places, checkpoints))
        return live

    def _give_up(self) -> None:
        """Give up the log in use, and free the logs that were begun: no location is in what was written."""
        self._logs.abandon()
        self._logs.discard()

    # ── a roll ───────────────────────────────────────────────────────────────────────────────────────

    def roll(self, state: IndexState) -> Generator[Pause, None, tuple[IndexState, RollResult]]:
        """End the log in use, so that its records can be moved too. The next write begins a new log."""
        # Everything in it is committed, because no checkpoint and no slice is under way.
        self._logs.seal()
        yield AT_ONCE
        return state, RollResult()

    # ── a removal ────────────────────────────────────────────────────────────────────────────────────

    def remove(
        self, state: IndexState, log_ids: Collection[int]
    ) -> Generator[Pause, None, tuple[IndexState, RemovalResult]]:
        """Remove logs in which no record is live, as both proofs of `storage.gc.proof` have shown."""
        assert state.last_log not in log_ids, "ids continue after the last log"
        log_ids = sorted(set(log_ids) & state.log_ends.keys())
        if not log_ids:
            return state, RemovalResult()
        # 1. The mark is at the generation of the index, because the lineage may leave out a log only if the
        #    mark does not need it.
        if self._last_mark.generation != state.generation:
            yield from self._advance_mark(state)
        # 2. The lineage. Before the index, because without the index the chain of headers would lead to a log
        #    that does not exist.
        gone = tuple(sorted({*self.still_gone(state), *log_ids}))
        ends = {one: end for one, end in state.log_ends.items() if one not in log_ids}
        lineage = Lineage(state.generation, _in_order(ends, state), gone)
        try:
            lineage_file.write_draft(self._directory, lineage, self._store_id)
        except OSError as error:
            return state, RemovalResult(error=error)
        lineage_file.publish(self._directory)
        yield AT_ONCE
        # 3. The index. Before the unlink, so that a reader that finds no log and asks again gets no location
        #    in it. From now on the logs are `gone`: otherwise a bookie's log that a power cut brings back
        #    would look as if a bookie had run here.
        after = replace(state, generation=state.generation + 1, log_ends=ends, gone=gone)
        with self._index.change() as change:
            error_of_index = self._committed(lambda: change.commit(after), state)
        if error_of_index is not None:
            return state, RemovalResult(error=error_of_index)
        yield AT_ONCE
        # 4. The mark, so that the state that it describes does not have the logs.
        yield from self._advance_mark(after)
        # 5. The files.
        error_of_unlink = yield from self._unlink(after)
        # 6. Memory: the descriptors. After the unlink, because a reader would otherwise open a log again.
        for log_id in log_ids:
            self._open_logs.drop(log_id)
        return after, RemovalResult(tuple(log_ids), error_of_unlink)

    def sweep(self, state: IndexState) -> Generator[Pause, None, tuple[IndexState, RemovalResult]]:
        """Remove the files of logs that are gone and could not be removed, and forget those that are."""
        if not state.gone:
            return state, RemovalResult()
        error = yield from self._unlink(state)
        after = replace(state, generation=state.generation + 1, gone=self.still_gone(state))
        if after.gone == state.gone:
            return state, RemovalResult(error=error)
        with self._index.change() as change:
            error_of_index = self._committed(lambda: change.commit(after), state)
        if error_of_index is not None:
            return state, RemovalResult(error=error_of_index)
        yield from self._advance_mark(after)
        return after, RemovalResult(error=error)

    def _unlink(self, state: IndexState) -> Generator[Pause, None, OSError | None]:
        """Remove the files of the logs that are gone. Return the error of one that stays."""
        failed: OSError | None = None
        names = set(self._directory.names())
        left = set()
        for log_id in state.gone:
            name = filenames.entry_log(log_id)
            if name in names:
                try:
                    self._directory.remove(name)
                except OSError as error:
                    # It stays gone for the store. The next sweep or opening tries again.
                    LOG.warning("%s/%s was not removed: %s", self._directory.path, name, error)
                    failed = error
                    left.add(log_id)
                yield AT_ONCE
        # Before they are forgotten: until then a power cut may bring the files back.
        self._directory.sync()
        self._unlinked = self._unlinked | (set(state.gone) - left)
        return failed

    # ── tombstones ───────────────────────────────────────────────────────────────────────────────────

    def purge(
        self, state: IndexState, changes: dict[int, int]
    ) -> Generator[Pause, None, tuple[IndexState, PurgeResult]]:
        """Purge tombstones that kill nothing. `changes` has the number of each tombstone by its ledger.

        A tombstone that was replaced since stays.
        """

        def forget_in_index(purged: Collection[int]) -> IndexState:
            after = replace(
                state,
                generation=state.generation + 1,
                rows_sequence=self._metadata.sequence,
                gone=self.still_gone(state),
            )
            with self._index.change() as change:
                change.remove_rows(purged)
                change.commit(after)
            return after

        # 1. `ledgers.rows`, 2. the index, 3. memory. The index must not forget a tombstone first, because a
        #    power cut may then bring the older `ledgers.rows` back, and an opening would take the tombstone
        #    for a new one and remove the locations of a ledger that was made again.
        try:
            purged, after = self._metadata.purge(changes, forget_in_index)
        except OSError as error:
            if error.errno not in NO_SPACE or self._metadata.is_file_unknown or self._index.state() != state:
                raise
            return state, PurgeResult(error=error)
        if after is None:
            return state, PurgeResult()
        yield from self._advance_mark(after)
        return after, PurgeResult(purged)

    # ── shared by the orders ──────────────────────────────────────────────────────────────────────────────

    def _committed(self, commit: Callable[[], None], before: IndexState) -> OSError | None:
        """Commit to the index. Return the error if the index has certainly stayed as it was."""
        try:
            commit()
        except OSError as error:
            if error.errno not in NO_SPACE or self._index.state() != before:
                raise
            return error
        return None

    def _advance_mark(self, state: IndexState) -> Generator[Pause, None, None]:
        trial = self._space.trial(Need.FINISHING)
        while (error := self._last_mark.advance(state)) is not None:
            if error.errno not in NO_SPACE:
                raise error
            yield AT_ONCE if trial.may_repeat(error) else _RETRY_S


def _by_step(chunks: Sequence[SliceChunk], step_size: int) -> Iterator[Sequence[SliceChunk]]:
    """Yield the chunks that one step moves: several small ones are written together."""
    start = size = 0
    for number, one in enumerate(chunks):
        size += one.records.size
        if number > start and size > step_size:
            yield chunks[start:number]
            start, size = number, one.records.size
    if start < len(chunks):
        yield chunks[start:]


def locations_of(index: IndexReader, ledger_id: int, ids: Sequence[int]) -> list[int | None]:
    """Return the packed location of each of these ascending entries."""
    span = ids[-1] - ids[0] + 1
    if span > 4 * len(ids):
        return [index.find(ledger_id, one) for one in ids]
    pairs = index.locations(ledger_id, ids[0], span)
    if not pairs:
        return [None] * len(ids)
    if len(pairs) >= len(ids) == span and pairs[span - 1][0] == ids[-1]:
        return [place for _, place in pairs[:span]]
    found = dict(pairs)
    return [found.get(one) for one in ids]


def _in_order(ends: dict[int, int], state: IndexState) -> tuple[LogPosition, ...]:
    """Return the logs in the order in which they were written."""
    assert state.last_log is not None, "it has logs"
    age = age_of(state.last_log)
    return tuple(LogPosition(one, ends[one]) for one in sorted(ends, key=age))
