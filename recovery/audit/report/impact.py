"""The effect of findings on data: entries without a sound copy, and from where others can be repaired.

Stores hold copies of the same entries if ensembles were given, or if they are bookies of one cluster, which
the instance id in their cookies shows. An entry is damaged in a store if an error names it there. A copy of
another store is sound if the audit has read it and no error names it.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from io import StringIO
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.findings.finding import Severity
from recovery.audit.model.runs import no_runs
from recovery.audit.model.store_facts import DirectoryOwner
from recovery.audit.model.store_tables import JOURNAL, LOG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from recovery.audit.model.audit_report import AuditReport, StoreReport
    from recovery.audit.model.runs import Runs

_LACKING, _DIFFERENT = "RPL-001", "RPL-002"


Spans = list[tuple[int, int]]
"""Pairs of first and last number, ascending."""


@dataclass(frozen=True, slots=True)
class DamagedSpan:
    """Entries of a ledger, `step` apart, that a store has lost or has damaged."""

    store: str
    ledger_id: int
    first: int
    last: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Repair:
    """Entries of a ledger, `step` apart, that a store should get again, and the stores with a sound copy."""

    ledger_id: int
    first: int
    last: int
    step: int
    to: str
    sources: tuple[str, ...]
    bytes: int
    """An estimate from the mean size of the ledger's entries."""

    @property
    def entries(self) -> int:
        return (self.last - self.first) // self.step + 1


@dataclass(frozen=True, slots=True)
class Impact:
    """The number of entries that are lost, at risk or repairable, and the repairs."""

    repairs: tuple[Repair, ...] = ()
    lost: int = 0
    """Entries without a sound copy in any store that was audited."""
    single: int = 0
    """Entries with one sound copy left, where more are required."""
    bytes: int = 0
    """About how many bytes the entries have that are damaged or missing somewhere."""
    knows_copies: bool = False
    """Whether the stores hold copies of each other."""
    sources: Mapping[str, int] = field(default_factory=dict)
    """For each store the number of entries that can be copied from it."""

    @property
    def damaged(self) -> int:
        return sum(one.entries for one in self.repairs)

    @property
    def repairable(self) -> int:
        return sum(one.entries for one in self.repairs if one.sources)


def impact(report: AuditReport) -> Impact:
    """Return what the errors of a report mean for data."""
    replicas = report.replicas
    peers = _peers(report)
    sizes: dict[tuple[str, int], int] = {}
    repairs = tuple(
        one
        for span in _spans(report)
        for one in _repairs(span, peers.get(span.store, ()), _size_in(sizes, span, peers))
    )
    none, single = (_entries(repairs, copies) for copies in (0, 1))
    if replicas is not None:
        named = {one.ledger_id for one in replicas.ledgers}
        others = [one for one in repairs if one.ledger_id not in named]
        none, single = (_entries(others, copies) for copies in (0, 1))
        none += sum(one.copies[0] for one in replicas.ledgers)
        single += sum(one.copies[1] for one in replicas.ledgers if len(one.copies) > 2)
    sources: Counter[str] = Counter()
    for one in repairs:
        sources.update(dict.fromkeys(one.sources, one.entries))
    knows_copies = replicas is not None or any(len(some) > 1 for some in peers.values())
    size = sum(one.bytes for one in repairs)
    return Impact(repairs, none, single, size, knows_copies, dict(sources.most_common()))


def _entries(repairs: Iterable[Repair], copies: int) -> int:
    """Return how many entries have so many sound copies. Several stores may have lost the same entry."""
    some = (one for one in repairs if len(one.sources) == copies)
    return sum(one.entries for one in {(one.ledger_id, one.first, one.last): one for one in some}.values())


def _spans(report: AuditReport) -> Iterator[DamagedSpan]:
    """Yield what is damaged. Of ledgers with ensembles the comparison of replicas has everything that is
    missing.
    """
    compared = {one.ledger_id for one in report.replicas.ledgers} if report.replicas else set()
    by_ledger: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for one in report.findings:
        if one.severity is not Severity.ERROR or one.ledger_id is None or one.first_entry is None:
            continue
        last = one.first_entry if one.last_entry is None else one.last_entry
        if one.kind == _LACKING:
            step = max(1, (last - one.first_entry) // (one.count - 1)) if one.count > 1 else 1
            yield DamagedSpan(one.store, one.ledger_id, one.first_entry, last, step)
        elif one.kind != _DIFFERENT and one.ledger_id not in compared:
            by_ledger[one.store, one.ledger_id].append((one.first_entry, last))
    for (store, ledger_id), spans in sorted(by_ledger.items()):
        for first, last in _united(spans):
            yield DamagedSpan(store, ledger_id, first, last)


def _united(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    begin, end = None, -1
    for first, last in sorted(spans):
        if begin is None or first > end + 1:
            if begin is not None:
                yield begin, end
            begin, end = first, last
        end = max(end, last)
    if begin is not None:
        yield begin, end


# ── copies in other stores ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, eq=False)
class _Peer:
    """A store that holds copies, the store itself included."""

    name: str
    runs: Mapping[int, Runs]
    """By ledger; only of ledgers that are damaged in some store."""
    damaged: Mapping[int, Spans]
    _known: dict[tuple[int, int, int], Spans] = field(default_factory=dict)

    def steps(self, ledger_id: int) -> list[int]:
        runs = self.runs[ledger_id]
        return [1] if (runs["step"] == 1).all() else np.unique(runs["step"]).tolist()

    def sound(self, ledger_id: int, first: int, step: int, turns: int) -> Spans:
        """Return which of the entries first, first + step, … are sound, as spans of their numbers."""
        remainder = first % step
        key = ledger_id, step, remainder
        if key not in self._known:
            self._known[key] = self._all_sound(ledger_id, step, remainder)
        begin, spans = first // step, self._known[key]
        at = bisect_left(spans, begin, key=itemgetter(1))
        found = []
        while at < len(spans) and spans[at][0] < begin + turns:
            low, high = spans[at]
            found.append((max(low - begin, 0), min(high - begin, turns - 1)))
            at += 1
        return found

    def _all_sound(self, ledger_id: int, step: int, remainder: int) -> Spans:
        """Return all sound entries with this remainder, divided by the step, as spans in ascending order."""
        runs = self.runs[ledger_id]
        some = runs[(runs["bad"] == 0) & ((remainder - runs["first"]) % runs["step"] == 0)]
        firsts, lasts = -((remainder - some["first"]) // step), (some["last"] - remainder) // step
        pairs = zip(firsts.tolist(), lasts.tolist(), strict=True)
        spans = list(_united(pair for pair in pairs if pair[0] <= pair[1]))
        for begin, end in self.damaged.get(ledger_id, ()):
            lost = -((remainder - begin) // step), (end - remainder) // step
            spans = [part for one in spans for part in _without(one, *lost)]
        return spans


def _peers(report: AuditReport) -> dict[str, tuple[_Peer, ...]]:
    """Return for each store with damage the stores of the same cluster."""
    damaged: defaultdict[str, defaultdict[int, list[tuple[int, int]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    ledgers: set[int] = set()
    for one in report.findings:
        if one.severity is Severity.ERROR and one.ledger_id is not None and one.first_entry is not None:
            ledgers.add(one.ledger_id)
            if one.kind not in (_LACKING, _DIFFERENT):
                last = one.first_entry if one.last_entry is None else one.last_entry
                damaged[one.store][one.ledger_id].append((one.first_entry, last))
    peers = {
        store.store: _Peer(
            store.store,
            dict(_runs_of(store, ledgers)),
            {ledger: list(_united(spans)) for ledger, spans in damaged[store.store].items()},
        )
        for store in report.stores
    }
    clusters: defaultdict[str, list[str]] = defaultdict(list)
    for store in report.stores:
        clusters[_cluster(store, report)].append(store.store)
    return {name: tuple(peers[one] for one in names) for names in clusters.values() for name in names}


def _cluster(store: StoreReport, report: AuditReport) -> str:
    if report.replicas is not None and store.store in report.replicas.paths.values():
        return "replicas"
    if store.owner is DirectoryOwner.BOOKIE and store.identity.instance_id:
        return f"cluster {store.identity.instance_id}"
    return f"store {store.store}"


def _runs_of(store: StoreReport, ledgers: set[int]) -> Iterator[tuple[int, Runs]]:
    """Yield what a store holds of each of these ledgers."""
    chosen = no_runs() if store.tables is None or not ledgers else store.tables.runs((LOG, JOURNAL), ledgers)
    for ledger_id in np.unique(chosen["ledger"]).tolist():
        yield ledger_id, chosen[chosen["ledger"] == ledger_id]


def _repairs(span: DamagedSpan, peers: tuple[_Peer, ...], size: int) -> Iterator[Repair]:
    """Yield the pieces of a span that have the same sources."""
    others = [peer for peer in peers if span.ledger_id in peer.runs and peer.name != span.store]
    step = int(np.lcm.reduce([span.step, *(one for peer in others for one in peer.steps(span.ledger_id))]))
    for first in range(span.first, min(span.last, span.first + step - 1) + 1, span.step):
        turns = (span.last - first) // step + 1
        have = {peer.name: peer.sound(span.ledger_id, first, step, turns) for peer in others}
        for begin, end, sources in _pieces(have, turns):
            yield Repair(
                span.ledger_id,
                first + begin * step,
                first + end * step,
                step,
                span.store,
                sources,
                (end - begin + 1) * size,
            )


def _size_in(
    sizes: dict[tuple[str, int], int],
    span: DamagedSpan,
    peers: Mapping[str, tuple[_Peer, ...]],
) -> int:
    """Return the mean size of the entries of a ledger in the stores of a cluster."""
    others = peers.get(span.store, ())
    key = others[0].name if others else "", span.ledger_id
    if key not in sizes:
        sizes[key] = _mean_size([peer.runs[span.ledger_id] for peer in others if span.ledger_id in peer.runs])
    return sizes[key]


def _mean_size(runs: list[Runs]) -> int:
    entries = sum(int(one["count"].sum()) for one in runs)
    return sum(int(one["size"].sum()) for one in runs) // entries if entries else 0


def _without(span: tuple[int, int], first: int, last: int) -> Iterator[tuple[int, int]]:
    begin, end = span
    if last < begin or first > end or first > last:
        yield span
        return
    if begin < first:
        yield begin, first - 1
    if last < end:
        yield last + 1, end


def _pieces(have: Mapping[str, Spans], turns: int) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield stretches of numbers that the same stores have."""
    bounds = {0, turns}
    for spans in have.values():
        for first, last in spans:
            bounds |= {first, last + 1}
    for begin, after in pairwise(sorted(bounds)):
        # No span begins or ends inside the stretch.
        names = (name for name, spans in have.items() if any(one <= begin <= end for one, end in spans))
        yield begin, after - 1, tuple(names)


def as_csv(found: Impact) -> str:
    """Return the repairs as CSV: a line for each range of entries; sources are separated by blanks."""
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("ledger", "first_entry", "last_entry", "step", "entries", "bytes", "to", "from"))
    for one in found.repairs:
        ids = one.ledger_id, one.first, one.last, one.step
        lines.writerow((*ids, one.entries, one.bytes, one.to, " ".join(one.sources)))
    return text.getvalue()
