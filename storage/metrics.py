"""The metrics of a store, as values: names, meanings, and how each is taken from its statistics.

A metric that Apache BookKeeper has, too, and that means the same here has BookKeeper's name, so that its
dashboards and alarms go on working. All others begin with `ledgerstore_`. `storage.prometheus` makes text of
them; this module needs no package for that.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.latencies import LatencySummary
    from storage.stats import StoreStats

QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1.0)
"""The quantiles that BookKeeper shows of each operation."""

JOURNAL = (("journalIndex", "0"),)
"""The label of BookKeeper's metrics of a journal."""


class MetricKind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its name, kind and meaning."""

    name: str
    kind: MetricKind
    meaning: str


class Sample(NamedTuple):
    """One value of a metric."""

    value: float
    labels: tuple[tuple[str, str], ...] = ()
    suffix: str = ""
    """The ending of the name: `_count` and `_sum` of a summary."""


class Measured(NamedTuple):
    """A metric and its values at one moment."""

    metric: Metric
    samples: tuple[Sample, ...]


def summary_samples(summary: LatencySummary, labels: tuple[tuple[str, str], ...] = ()) -> Iterator[Sample]:
    """Return the samples of a summary, in milliseconds, as BookKeeper exports an operation."""
    for quantile, seconds in zip(QUANTILES, summary.quantiles(QUANTILES), strict=True):
        yield Sample(seconds * 1000, (*labels, ("quantile", str(quantile))))
    yield Sample(summary.count, labels, "_count")
    yield Sample(summary.seconds * 1000, labels, "_sum")


# ── the metrics of a store ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StoreMetric:
    """A metric that comes from the statistics of a store."""

    metric: Metric
    value: Callable[[StoreStats], float | None]
    """Returns `None` if there is no value, for example before the first checkpoint."""
    labels: tuple[tuple[str, str], ...] = ()


def _metric(
    kind: MetricKind,
    name: str,
    meaning: str,
    value: Callable[[StoreStats], float | None],
    labels: tuple[tuple[str, str], ...] = (),
) -> StoreMetric:
    return StoreMetric(Metric(name, kind, meaning), value, labels)


_gauge, _counter = partial(_metric, MetricKind.GAUGE), partial(_metric, MetricKind.COUNTER)

STORE_METRICS = (
    _counter("ledgerstore_adds_total", "Entries that were added and are durable.", lambda s: s.adds),
    _counter(
        "ledgerstore_groups_total",
        "Groups of adds that were written to the journal with one write and one sync.",
        lambda s: s.groups,
    ),
    _counter("ledgerstore_journal_syncs_total", "Syncs of journals.", lambda s: s.syncs),
    _counter(
        "bookie_journal_JOURNAL_WRITE_BYTES",
        "Bytes that were written to journals: records, padding and seals.",
        lambda s: s.journal_bytes_written,
        JOURNAL,
    ),
    _gauge(
        "bookie_journal_JOURNAL_QUEUE_SIZE",
        "Adds that wait for the group that is written next.",
        lambda s: s.waiting_adds,
        JOURNAL,
    ),
    _gauge(
        "bookie_write_cache_size",
        "Bytes of the entries in memory that the next checkpoints write to entry logs.",
        lambda s: s.memtable.bytes + s.memtable.frozen_bytes,
    ),
    _gauge(
        "bookie_write_cache_count",
        "Entries in memory that the next checkpoints write to entry logs.",
        lambda s: s.memtable.entries + s.memtable.frozen_entries,
    ),
    _gauge(
        "ledgerstore_write_cache_limit_bytes",
        "The size of the entries in memory at which a checkpoint begins.",
        lambda s: s.memtable.bytes_max,
    ),
    _gauge(
        "ledgerstore_write_cache_frozen_bytes",
        "Bytes of the entries that the checkpoint under way writes.",
        lambda s: s.memtable.frozen_bytes,
    ),
    _counter("ledgerstore_checkpoints_total", "Checkpoints that have ended.", lambda s: s.checkpoint.count),
    _gauge(
        "ledgerstore_checkpoint_last_seconds",
        "How long the last checkpoint took.",
        lambda s: s.checkpoint.last_seconds,
    ),
    _gauge(
        "ledgerstore_checkpoint_lag_bytes",
        "Bytes of journals that an opening would replay after a crash.",
        lambda s: s.checkpoint.lag_bytes,
    ),
    _gauge(
        "ledgerstore_checkpoint_waits_for_space",
        "1 while the checkpoint under way cannot go on because the disk is full.",
        lambda s: s.checkpoint.waits_for_space,
    ),
    _gauge("ledgerstore_journal_files", "Journals on the disk.", lambda s: s.journals.count),
    _gauge("ledgerstore_journal_file_bytes", "Size of these journals.", lambda s: s.journals.bytes),
    _gauge("bookie_gc_ACTIVE_ENTRY_LOG_TOTAL", "Entry logs on the disk.", lambda s: s.entry_logs.count),
    _gauge("bookie_gc_ENTRY_LOG_SPACE_BYTES", "Size of these entry logs.", lambda s: s.entry_logs.bytes),
    _gauge("ledgerstore_index_bytes", "Size of the index.", lambda s: s.index_bytes),
    _gauge("bookie_ledgers_count", "Ledgers that exist here.", lambda s: s.ledgers),
    _gauge(
        "ledgerstore_tombstones",
        "Deleted ledgers that the store still has to remember.",
        lambda s: s.tombstones,
    ),
    _counter(
        "ledgerstore_collections_total",
        "Collections of the space of deleted entries that have ended.",
        lambda s: s.collection.count,
    ),
    _gauge(
        "ledgerstore_collection_paused", "1 while collection is paused.", lambda s: s.collection.is_paused
    ),
    _gauge(
        "ledgerstore_collection_last_seconds",
        "How long the last collection took.",
        lambda s: s.collection.last_seconds,
    ),
    _counter(
        "ledgerstore_collection_removed_logs_total",
        "Entry logs that collections have removed.",
        lambda s: s.collection.logs_removed,
    ),
    _counter(
        "ledgerstore_collection_freed_bytes_total",
        "Size of these entry logs.",
        lambda s: s.collection.bytes_freed,
    ),
    _counter(
        "ledgerstore_collection_moved_bytes_total",
        "Bytes of live entries that compactions have moved to another log.",
        lambda s: s.collection.bytes_moved,
    ),
    _gauge(
        "ledgerstore_collection_passed_over_logs",
        "Entry logs that the last collection found damaged, or with a record that nothing explains.",
        lambda s: s.collection.logs_passed_over,
    ),
    _gauge("bookie_ledger_num_dirs", "Ledger directories: always 1.", lambda _: 1),
    _gauge(
        "bookie_ledger_writable_dirs",
        "Ledger directories to which entries can be added: 0 while adds are refused.",
        lambda s: s.read_only is None and s.failed is None,
    ),
    _gauge(
        "ledgerstore_failed",
        "1 if an error has stopped the store from writing: opening it again recovers it.",
        lambda s: s.failed is not None,
    ),
    _gauge("ledgerstore_disk_full", "1 if the last write met a full disk.", lambda s: s.disk_full),
    _gauge(
        "ledgerstore_read_only",
        "1 while adds are refused for lack of space.",
        lambda s: s.read_only is not None,
    ),
    _gauge(
        "ledgerstore_reserve_bytes",
        "Space that is kept for work on a full disk.",
        lambda s: s.reserve_bytes,
    ),
    _gauge(
        "ledgerstore_opened_timestamp_seconds",
        "When the store was opened, in seconds since 1970.",
        lambda s: s.opened_at,
    ),
)


def store_metrics(stats: StoreStats, labels: tuple[tuple[str, str], ...] = ()) -> Iterator[Measured]:
    """Return the metrics of a store. `labels` come first in each sample."""
    for one in STORE_METRICS:
        value = one.value(stats)
        if value is not None:
            yield Measured(one.metric, (Sample(float(value), (*labels, *one.labels)),))
