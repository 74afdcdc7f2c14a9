"""The metrics of a bookie on the network, beside those of its store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.cluster.bookie.traffic import RequestKind
from storage.cluster.metadata.registration import BookieMode
from storage.metrics import JOURNAL, Measured, Metric, MetricKind, Sample, summary_samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from storage.cluster.bookie.server import ServerLoad
    from storage.cluster.wire.codes import Code
    from storage.latencies import LatencySummary


@dataclass(frozen=True, slots=True)
class OperationFigures:
    """The requests of one operation at one moment."""

    done: LatencySummary
    failed: LatencySummary
    codes: Mapping[Code, int]


@dataclass(frozen=True, slots=True)
class BookieFigures:
    """The figures of a bookie at one moment."""

    bookie_id: str
    version: str
    mode: BookieMode | None
    """How it is registered; `None` while it is not."""
    has_session: bool
    load: ServerLoad
    disk_size: int
    disk_free: int
    ledgers_deleted: int
    """Ledgers that were deleted because the metadata no longer had them, or had them elsewhere."""
    operations: Mapping[RequestKind, OperationFigures]
    bytes_added: int
    bytes_read: int
    commits: LatencySummary
    """The waits for the journal's disk."""


_COUNTER, _GAUGE, _SUMMARY = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.SUMMARY

STATUS = Metric(
    "bookie_SERVER_STATUS", _GAUGE, "1: registered, 0: registered as read-only, -1: not registered."
)
BUILD = Metric("ledgerstore_build_info", _GAUGE, "Always 1; the labels say the bookie and its version.")
SESSION = Metric("ledgerstore_metadata_session", _GAUGE, "1 while there is a session with the metadata.")
ANSWERS = Metric("ledgerstore_answers_total", _COUNTER, "Answers by operation and code.")
WRITTEN = Metric("bookie_WRITE_BYTES", _COUNTER, "Bytes of entries that were accepted.")
READ = Metric("bookie_READ_BYTES", _COUNTER, "Bytes of entries in answers.")
SYNC = Metric(
    "bookie_journal_JOURNAL_SYNC",
    _SUMMARY,
    "How long commits waited for the journal's disk, in milliseconds.",
)
DELETED = Metric(
    "bookie_gc_DELETED_LEDGER_TOTAL",
    _COUNTER,
    "Ledgers deleted here because the metadata no longer had them, or had them elsewhere.",
)
CONNECTIONS = Metric("ledgerstore_connections", _GAUGE, "Connections of clients.")
UNANSWERED = Metric("ledgerstore_unanswered_bytes", _GAUGE, "Bytes of requests that are not answered yet.")
UNSENT = Metric("ledgerstore_unsent_bytes", _GAUGE, "Bytes of answers that slow clients have not taken yet.")
DISK = Metric("ledgerstore_disk_bytes", _GAUGE, "Size of the file system of the store.")
FREE = Metric("ledgerstore_disk_free_bytes", _GAUGE, "Free bytes there.")


def _requests(name: str, meaning: str) -> Metric:
    return Metric(f"bookkeeper_server_{name}", _SUMMARY, f"{meaning}: how long they took, in milliseconds.")


_ADDS = "Adds, from their arrival to the durable answer"
_READS = "Reads and batch reads"

REQUESTS: Mapping[RequestKind, tuple[Metric, ...]] = {
    RequestKind.ADD: (_requests("ADD_ENTRY_REQUEST", _ADDS), _requests("ADD_ENTRY", _ADDS)),
    RequestKind.READ: (_requests("READ_ENTRY_REQUEST", _READS), _requests("READ_ENTRY", _READS)),
    RequestKind.FENCE: (_requests("READ_ENTRY_FENCE_REQUEST", "Reads that fence"),),
    RequestKind.LONG_POLL: (_requests("READ_ENTRY_LONG_POLL_READ", "Long polls, after their wait"),),
    RequestKind.WRITE_LAC: (_requests("WRITE_LAC_REQUEST", "Explicit last adds confirmed that were set"),),
    RequestKind.READ_LAC: (_requests("READ_LAC_REQUEST", "Explicit last adds confirmed that were read"),),
    RequestKind.FORCE: (_requests("FORCE_LEDGER_REQUEST", "Forces"),),
    RequestKind.LIST: (
        _requests("GET_LIST_OF_ENTRIES_OF_LEDGER_REQUEST", "Lists of the entries of a ledger"),
    ),
    RequestKind.INFO: (_requests("GET_BOOKIE_INFO_REQUEST", "Requests for the space of the disk"),),
    RequestKind.OTHER: (),
}
"""The metrics of each operation.

Times that BookKeeper measures twice, at the request and in its executor, have the same values here, because
there is no executor.
"""

BOOKIE_METRICS = (
    *(STATUS, BUILD, SESSION, ANSWERS),
    *(metric for metrics in REQUESTS.values() for metric in metrics),
    *(WRITTEN, READ, SYNC, DELETED, CONNECTIONS, UNANSWERED, UNSENT, DISK, FREE),
)

_STATUS_VALUES = {BookieMode.WRITABLE: 1, BookieMode.READ_ONLY: 0, None: -1}


def bookie_metrics(figures: BookieFigures) -> Iterator[Measured]:
    """Return the metrics of a bookie."""

    def one(metric: Metric, value: float) -> Measured:
        return Measured(metric, (Sample(value),))

    yield one(STATUS, _STATUS_VALUES[figures.mode])
    build = (("bookie", figures.bookie_id), ("version", figures.version))
    yield Measured(BUILD, (Sample(1, build),))
    yield one(SESSION, figures.has_session)
    yield Measured(
        ANSWERS,
        tuple(
            Sample(count, (("operation", operation.value), ("code", name)))
            for operation, found in figures.operations.items()
            for name, count in _answers(found).items()
        ),
    )
    for operation, metrics in REQUESTS.items():
        found = figures.operations[operation]
        samples = (
            *summary_samples(found.failed, (("success", "false"),)),
            *summary_samples(found.done, (("success", "true"),)),
        )
        for metric in metrics:
            yield Measured(metric, samples)
    yield one(WRITTEN, figures.bytes_added)
    yield one(READ, figures.bytes_read)
    yield Measured(SYNC, tuple(summary_samples(figures.commits, (*JOURNAL, ("success", "true")))))
    yield one(DELETED, figures.ledgers_deleted)
    yield one(CONNECTIONS, figures.load.connections)
    yield one(UNANSWERED, figures.load.unanswered)
    yield one(UNSENT, figures.load.unsent)
    yield one(DISK, figures.disk_size)
    yield one(FREE, figures.disk_free)


def _answers(found: OperationFigures) -> dict[str, int]:
    """Return the number of answers by the name of their code; `OK` is always there."""
    return {"OK": found.done.count, **{code.name: count for code, count in found.codes.items()}}
