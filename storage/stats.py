"""The figures of an open store, as `Store.stats` returns them.

Adds count nothing for this: `stats_of` takes the figures from counters that journals, tables and checkpoints
need anyway, and the sizes of files from the file system.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.disk.filenames import FileKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.disk.files import Directory
    from storage.engine import Engine
    from storage.gc.report import CollectionStats
    from storage.memtable.table import Tables

Figure = int | float | bool | str | None


@dataclass(frozen=True, slots=True)
class FileStats:
    """The files of one kind."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MemtableStats:
    """Entries that are durable in the journals and wait in memory to be written to entry logs and index."""

    entries: int
    bytes: int
    """Bytes of memory, overhead included: when they reach `bytes_max`, a checkpoint begins."""
    bytes_max: int
    frozen_entries: int
    """Entries in the table that the checkpoint under way writes down."""
    frozen_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointStats:
    """The checkpoints since the store was opened."""

    count: int
    last_seconds: float | None
    """How long the last one took; `None` before the first."""
    lag_bytes: int
    """Bytes of journals after the last checkpoint, which an opening would replay after a crash."""
    waits_for_space: bool
    """Whether the checkpoint under way cannot go on because the disk is full."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The figures of an open store at one moment. Counters begin at 0 when the store is opened."""

    opened_at: float
    """When it was opened, in seconds since 1970."""
    adds: int
    """Entries that were added and are durable; an entry added twice under the same id counts once."""
    groups: int
    """Groups of adds that were written to the journals: one write and one sync each."""
    syncs: int
    """Syncs of journals: one for each group, and one when an idle store seals its last group."""
    journal_bytes_written: int
    """Bytes that were written to journals: records, padding and seals."""
    waiting_adds: int
    """Adds that wait for the group that is written next."""
    memtable: MemtableStats
    checkpoint: CheckpointStats
    journals: FileStats
    """Journals that a replay needs, and older ones that are kept, including the space filled ahead."""
    entry_logs: FileStats
    index_bytes: int
    ledgers: int
    tombstones: int
    """Deleted ledgers that the store still has to remember."""
    collection: CollectionStats
    failed: str | None
    """The error that stopped the store from writing; `None` while it works."""
    disk_full: bool
    """Whether the last write met a full disk."""
    read_only: str | None
    """Why adds are refused for lack of space; `None` while they are accepted."""
    reserve_bytes: int
    """Space that is kept for work on a full disk; 0 if it is in use or was not filled yet."""

    def as_dict(self) -> dict[str, Figure]:
        """Return all figures under flat names, such as `memtable_bytes`, for an exporter of metrics."""
        return dict(_flat(self, ""))


def _flat(stats: object, prefix: str) -> Iterator[tuple[str, Figure]]:
    assert is_dataclass(stats), "only statistics are nested in statistics"
    for field in fields(stats):
        value = getattr(stats, field.name)
        if is_dataclass(value):
            yield from _flat(value, f"{prefix}{field.name}_")
        else:
            yield f"{prefix}{field.name}", value


def stats_of(engine: Engine, opened_at: float, entries_before: int) -> StoreStats:
    """Return the figures now. `entries_before` is the number of entries in the tables at the opening."""
    # The mark is read before the journals, because journals that are trimmed in between lie before the mark.
    mark, checkpointer = engine.checkpointer.state.mark, engine.checkpointer
    tables, journals, committer = engine.slot.tables, engine.journals, engine.committer
    failure, refusal = engine.store_state.failure, engine.store_state.refusal
    ledgers = {*engine.reader.ledgers(), *engine.metadata.existing_ledgers()}
    return StoreStats(
        opened_at=opened_at,
        adds=tables.added - entries_before,
        groups=journals.groups - journals.seals,
        syncs=journals.groups,
        journal_bytes_written=journals.bytes_written,
        waiting_adds=len(committer.queue.open.entries),
        memtable=_memtable(tables, engine.config.memtable_size_max),
        checkpoint=CheckpointStats(
            count=checkpointer.count,
            last_seconds=checkpointer.last_seconds,
            lag_bytes=journals.bytes_after(mark),
            waits_for_space=checkpointer.disk_full_error is not None,
        ),
        journals=_files(journals.sizes().values()),
        entry_logs=_files(_sizes(engine.ledgers, _entry_logs(engine.ledgers))),
        index_bytes=index_bytes(engine.ledgers),
        ledgers=len(ledgers),
        tombstones=engine.metadata.count_tombstones(),
        collection=engine.collector.stats,
        failed=None if failure is None else f"{type(failure).__name__}: {failure}".removesuffix(": "),
        disk_full=checkpointer.disk_full_error is not None or committer.is_refused_for_space,
        read_only=None if refusal is None else refusal.reason,
        reserve_bytes=engine.space.reserve_bytes,
    )


def _memtable(tables: Tables, size_max: int) -> MemtableStats:
    active, frozen = tables.active, tables.frozen
    return MemtableStats(
        entries=len(active),
        bytes=active.size,
        bytes_max=size_max,
        frozen_entries=0 if frozen is None else len(frozen),
        frozen_bytes=0 if frozen is None else frozen.size,
    )


def _files(sizes: Iterable[int]) -> FileStats:
    known = list(sizes)
    return FileStats(len(known), sum(known))


def _entry_logs(directory: Directory) -> list[str]:
    return [name for name in directory.names() if filenames.parse(name).kind is FileKind.ENTRY_LOG]


def _sizes(directory: Directory, names: Iterable[str]) -> list[int]:
    sizes = []
    for name in names:
        # The file may have been removed since its name was read.
        with suppress(FileNotFoundError), directory.open(name) as file:
            sizes.append(file.size())
    return sizes


def index_bytes(ledgers: Directory) -> int:
    """Return the size of the files of the index in a ledger directory."""
    inner = ledgers.directory(filenames.INDEX)
    with suppress(FileNotFoundError, NotADirectoryError):
        # Not the lock file, because closing any descriptor of it releases the locks that LMDB holds in it.
        return sum(_sizes(inner, [name for name in inner.names() if name != filenames.INDEX_LOCK]))
    return sum(_sizes(ledgers, [filenames.INDEX]))
