"""Check replicas: entries with too few copies, copies that are not required, and copies that may differ.

The input is what every store holds and serves, as runs, and where copies have to be, as ensembles
(`recovery.audit.model.ensemble`, which says what is an error). The checks are the queries in `checks/sql/`;
this module gives them their tables, states their order, and makes findings of their results.

    runs ─▶ copies ─▶ stripes ─▶ islands ───────┐
    members ─▶ spans ─▶ groups ─▶ due ─▶ homes ──┴▶ placed ─▶ pieces

Copies and stripes have a row for each run, so that they are views: only their summaries are kept.
"""

from __future__ import annotations

import enum
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from recovery.audit.checks.texts import text
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.model import tables
from recovery.audit.model.audit_report import CopyCounts, StoreShare
from recovery.audit.model.ensemble import LedgerProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from recovery.audit.engines.sql import SqlEngine
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.ensemble import LedgerEnsembles
    from recovery.audit.model.runs import Runs

_REQUIRED = ("spans", "groups", "due", "homes")
_FOUND = ("placed", "pieces")
_ENTRY_MAX = 2**63 - 1


class Obligation(enum.StrEnum):
    """Which copies are required in a span."""

    CLOSED = "closed"
    """All Qw copies, because the ledger is closed."""
    OPEN = "open"
    """All Qw copies are required, and Qa were promised."""
    IN_FLIGHT = "in flight"
    """Qa copies were promised; the others may be in flight."""
    UNCONFIRMED = "unconfirmed"
    """No copy was promised."""
    BEFORE = "before"
    """No copy is required before the first segment."""
    AFTER = "after"
    """No copy is required after the last entry of a closed ledger."""


_NOTES = {
    Obligation.OPEN: "the ledger is open",
    Obligation.IN_FLIGHT: "the copy may be in flight",
    Obligation.UNCONFIRMED: "not known to be confirmed",
}
_WHY_SURPLUS = {
    Obligation.BEFORE: "before the ledger's first segment",
    Obligation.AFTER: "after the ledger's last entry",
}


class ComparedStore(NamedTuple):
    """One of the stores that are compared."""

    name: str
    """The name of the store in the ensembles."""
    path: str
    """The path of the store in findings."""
    is_indexed: bool


class ReplicaChecks:
    """The checks of one comparison. `stores` has every store that an ensemble names. The engine has their
    runs as the table `runs`, with the columns of `tables.RUNS`.
    """

    def __init__(
        self, sql: SqlEngine, ensembles: Iterable[LedgerEnsembles], stores: Sequence[ComparedStore]
    ) -> None:
        self._sql = sql
        self._ensembles = {one.ledger_id: one for one in sorted(ensembles, key=lambda one: one.ledger_id)}
        self._paths = {one.name: one.path for one in stores}
        members = (
            (one.ledger_id, segment.first_entry, place, store)
            for one in self._ensembles.values()
            for segment in one.segments
            for place, store in enumerate(segment.stores)
        )
        sizes = max((one.size for one in self._ensembles.values()), default=0)
        sql.put("members", tables.MEMBERS.whole(members))
        sql.put("numbers", tables.NUMBERS.whole((number,) for number in range(sizes)))
        sql.put("stores", tables.STORES.whole((one.name, one.is_indexed) for one in stores))
        self.take_entries((), {})
        self.take_progress({})

    def take_entries(self, ledgers: Iterable[int], exact: Mapping[str, Runs]) -> None:
        """Take by store what can be read of these ledgers, in place of their runs."""
        self._sql.put("read_ledgers", _LEDGERS.whole((one,) for one in ledgers))
        batches = [tables.runs_batch(store, "read", runs) for store, runs in exact.items()]
        self._sql.put("read_runs", tables.RUNS.joined(batches))
        self._has_changed = True

    def take_progress(self, progress: Mapping[int, LedgerProgress]) -> None:
        """Take how far open ledgers have come, as far as it is known."""
        self._sql.put("ensembles", tables.ENSEMBLES.whole(self._ensemble_rows(progress)))
        if self._has_changed:
            self._sql.view("copies", text("copies"))
            self._sql.view("stripes", text("stripes"))
            self._sql.define("islands", text("islands"))
            self._has_changed = False
        for name in (*_REQUIRED, *_FOUND):
            self._sql.define(name, text(name))

    def _ensemble_rows(self, progress: Mapping[int, LedgerProgress]) -> Iterator[tuple[int | None, ...]]:
        for one in self._ensembles.values():
            far = progress.get(one.ledger_id) or LedgerProgress.least(one)
            # The id after the confirmed entry must be a number too.
            come = (min(far.confirmed, _ENTRY_MAX - 1), min(far.settled, _ENTRY_MAX - 1))
            yield one.ledger_id, one.size, one.write_quorum, one.step, one.last_entry, *come

    def unnamed_ledgers(self, left_out: Iterable[int] = ()) -> list[tuple[str, int]]:
        """Return for each store how many of the ledgers that it serves no ensemble names, nor `left_out`."""
        self._sql.put("left_out", _LEDGERS.whole((one,) for one in left_out))
        return [(store, count) for store, count in self._sql.rows(text("unnamed_ledgers"))]

    # ── what fingerprints leave open ─────────────────────────────────────────────────────────────────────

    def suspect_ledgers(self) -> frozenset[int]:
        """Return the ledgers whose copies have to be compared entry by entry."""
        return frozenset(ledger for (ledger,) in self._sql.rows(text("suspect_ledgers")))

    def unsettled_ledgers(self) -> frozenset[int]:
        """Return open ledgers with copies missing after what is known to be confirmed."""
        return frozenset(ledger for (ledger,) in self._sql.rows(text("unsettled_ledgers")))

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────

    def findings(self) -> Iterator[Finding]:
        """Yield findings of missing copies, then of copies that are not required."""
        found = (_MissingCopy(*row) for row in self._sql.rows(text("missing_copies")))
        for piece, holders in groupby(found, key=lambda one: one[:-1]):
            yield from self._missing(_MissingCopy(*piece), [one.holder for one in holders if one.holder])
        for row in self._sql.rows(text("surplus_copies")):
            yield self._surplus(_SurplusCopy(*row))

    def _missing(self, piece: _MissingCopy, holders: list[str]) -> Iterator[Finding]:
        one = self._ensembles[piece.ledger]
        due = self._due(one, piece)
        others = sorted(set(holders) - set(due))
        having = [store for store in due if store in holders]
        owed = Obligation(piece.owed)
        details = [f"should be on {', '.join(due)}; is on {', '.join(having) or 'none of them'}"]
        details += [f"on {', '.join(others)}, where it need not be"] if others else []
        details += [*_spacing(one, piece.entries), *([_NOTES[owed]] if owed in _NOTES else [])]
        for store in due:
            if store not in holders:
                yield KINDS["RPL-001"].at(
                    severity=severity(owed, piece.copies, one.ack_quorum),
                    store=self._paths[store],
                    ledger_id=piece.ledger,
                    first_entry=piece.first_entry,
                    last_entry=piece.last_entry,
                    count=piece.entries,
                    detail="; ".join(details),
                )

    def _surplus(self, found: _SurplusCopy) -> Finding:
        one, owed = self._ensembles[found.ledger], Obligation(found.owed)
        why = _WHY_SURPLUS.get(owed) or f"should be on {', '.join(self._due(one, found))}"
        return KINDS["RPL-003"].at(
            store=self._paths[found.store],
            ledger_id=found.ledger,
            first_entry=found.first_entry,
            last_entry=found.last_entry,
            count=found.entries,
            detail="; ".join([why, *_spacing(one, found.entries)]),
        )

    @staticmethod
    def _due(one: LedgerEnsembles, found: _MissingCopy | _SurplusCopy) -> list[str]:
        segment = next(segment for segment in one.segments if segment.first_entry == found.segment)
        return list(one.places(segment, found.first_entry))

    def coverage(self) -> tuple[CopyCounts, ...]:
        """Return the number of copies by ledger, in the order of ids."""
        counts = {one.ledger_id: [0] * (one.write_quorum + 1) for one in self._ensembles.values()}
        for ledger, copies, entries in self._sql.rows(text("copy_counts")):
            counts[ledger][copies] = int(entries)
        return tuple(
            CopyCounts(one.ledger_id, one.last_entry is None, tuple(counts[one.ledger_id]))
            for one in self._ensembles.values()
        )

    def stores(self) -> dict[str, StoreShare]:
        """Return by the stores' names what each should hold and does hold."""
        shares = {
            store: StoreShare(*map(int, numbers)) for store, *numbers in self._sql.rows(text("store_shares"))
        }
        return {store: shares.get(store, StoreShare(0, 0, 0)) for store in self._paths}

    def differing_copies(self, copies: pa.Table) -> list[int]:
        """Return the numbers of the copies, rows of `READ_COPIES`, that differ from another required copy."""
        self._sql.put("read_copies", copies)
        return [number for (number,) in self._sql.rows(text("differing_copies"))]


class _MissingCopy(NamedTuple):
    """A piece with too few copies, and one of the stores that hold it."""

    ledger: int
    segment: int
    owed: str
    copies: int
    first_entry: int
    last_entry: int
    entries: int
    holder: str | None = None


class _SurplusCopy(NamedTuple):
    """Copies on a store that need not hold them."""

    ledger: int
    segment: int | None
    owed: str
    store: str
    first_entry: int
    last_entry: int
    entries: int


_LEDGERS = tables.table("ledger")

READ_COPIES = tables.table("number", "ledger", "entry", "store:string", "digest", "size")
"""Readable copies of single entries. The number is chosen by the caller."""


def severity(owed: Obligation, copies: int, ack_quorum: int) -> Severity:
    """Return how severe it is that copies are missing, depending on what was promised."""
    match owed:
        case Obligation.CLOSED:
            return Severity.ERROR
        case Obligation.OPEN:
            return Severity.ERROR if copies < ack_quorum else Severity.WARNING
        case Obligation.IN_FLIGHT:
            return Severity.ERROR if copies < ack_quorum else Severity.INFORMATION
        case _:
            return Severity.INFORMATION


def _spacing(one: LedgerEnsembles, entries: int) -> list[str]:
    return [f"one entry in {one.step}"] if one.step > 1 and entries > 1 else []
