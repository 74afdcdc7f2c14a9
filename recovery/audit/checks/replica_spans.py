"""Spans: ranges of a ledger in which every entry has to be on the same stores, for the same reason.

A span ends where a segment ends, and in an open ledger also where the confirmed and the settled entries end.
In a span the entries of one residue form a *group*: they have one write set and the same required copies.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.audit.checks.stripes import LedgerNumbers, last_at_or_before
from recovery.audit.model.ensemble import LedgerProgress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.audit.checks.stripes import Stripes
    from recovery.audit.model.ensemble import LedgerEnsembles, Segment
    from recovery.audit.model.runs import Numbers

_ENTRY_MAX = 2**63 - 1


class Obligation(enum.IntEnum):
    """Which copies are required in a span."""

    CLOSED = 0
    """All Qw copies, because the ledger is closed."""
    OPEN = 1
    """All Qw copies are required, and Qa were promised."""
    IN_FLIGHT = 2
    """Qa copies were promised; the others may be in flight."""
    UNCONFIRMED = 3
    """No copy was promised."""
    NOTHING = 4
    """No copy is required: before the first segment, or after the last entry of a closed ledger."""


class _Span(NamedTuple):
    ledger: int
    first: int
    last: int
    members: int
    size: int
    write: int
    ack: int
    owed: int


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """The spans of all ledgers in order, as columns."""

    ledgers: LedgerNumbers
    low: Numbers
    """For each ledger its first span; at the end the number of spans."""
    ledger: Numbers
    first: Numbers
    last: Numbers
    members: Numbers
    """Where the span's ensemble begins in `stores`."""
    size: Numbers
    write: Numbers
    """The write quorum, or 0 if no copy is required."""
    ack: Numbers
    owed: Numbers
    stores: Numbers
    """The numbers of the stores of all ensembles, one ensemble after the other."""
    group: Numbers
    """The number of each span's first group, one group for each residue; at the end the number of groups."""

    @property
    def step(self) -> Numbers:
        return self.ledgers.steps[self.ledger]

    def first_turn(self, span: Numbers, residue: Numbers) -> Numbers:
        step = self.step[span]
        turn: Numbers = self.first[span] // step + (self.first[span] % step > residue)
        return turn

    def last_turn(self, span: Numbers, residue: Numbers) -> Numbers:
        step = self.step[span]
        turn: Numbers = self.last[span] // step - (self.last[span] % step < residue)
        return turn

    def place(self, span: Numbers, residue: Numbers, number: int) -> Numbers:
        """Return the store at that position of the group's write set."""
        there: Numbers = self.stores[self.members[span] + (residue + number) % self.size[span]]
        return there

    def columns(self, span: Numbers, residue: Numbers, store: Numbers) -> Numbers:
        """Return the position of a store in the write set, or -1."""
        found = np.full(len(span), -1)
        for number in range(int(self.write[span].max(initial=0))):
            counts = self.write[span] > number
            found[counts & (self.place(span, residue, number) == store)] = number
        return found

    def of_entries(self, ledger: Numbers, entries: Numbers) -> Numbers:
        """Return the span of each entry."""
        return last_at_or_before(self.first, self.low[ledger], self.low[ledger + 1], entries)

    def crossed(self, rows: Stripes) -> tuple[Numbers, Numbers]:
        """Return the first and last span of each stripe."""
        ledger, step = rows["ledger"], self.ledgers.steps[rows["ledger"]]
        firsts, lasts = (rows[name] * step + rows["residue"] for name in ("first", "last"))
        return self.of_entries(ledger, firsts), self.of_entries(ledger, lasts)


@dataclass(frozen=True, slots=True, eq=False)
class SpanPieces:
    """Stripes cut where spans end: the row of each piece, and its span."""

    row: Numbers
    span: Numbers


def cut(rows: Stripes, spans: Spans) -> SpanPieces:
    """Return every span of each row, also those in which the row has no entry."""
    low, high = spans.crossed(rows)
    counts = high - low + 1
    row = np.repeat(np.arange(len(rows)), counts)
    span = low[row] + np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    return SpanPieces(row, span)


def ledgers_of(ensembles: Sequence[LedgerEnsembles]) -> LedgerNumbers:
    """Return the ledgers in the given order, which is that of their ids."""
    return LedgerNumbers(
        np.array([one.ledger_id for one in ensembles], dtype=np.int64),
        np.array([one.step for one in ensembles], dtype=np.int64),
    )


def spans_of(
    ensembles: Sequence[LedgerEnsembles],
    stores: Mapping[str, int],
    progress: Mapping[int, LedgerProgress],
    furthest: Sequence[int] | Numbers,
) -> Spans:
    """Return all spans. `furthest` is the last entry of each ledger that any store has, or -1."""
    spans: list[_Span] = []
    members: list[int] = []
    low = [0]
    for number, one in enumerate(ensembles):
        far = progress.get(one.ledger_id) or LedgerProgress.least(one)
        places = {}
        for segment in one.segments:
            places[segment.first_entry] = len(members)
            members += [stores[store] for store in segment.stores]
        for first, last, owed, owner in _pieces(one, far, int(furthest[number])):
            quorums = (one.write_quorum, one.ack_quorum) if owner else (0, 0)
            place = places[owner.first_entry] if owner else 0
            spans.append(_Span(number, first, last, place, one.size, *quorums, owed))
        low.append(len(spans))
    table = np.array(spans, dtype=np.int64).reshape(len(spans), len(_Span._fields))
    columns = dict(zip(_Span._fields, table.T, strict=True))
    ledgers = ledgers_of(ensembles)
    group = np.zeros(len(spans) + 1, dtype=np.int64)
    np.cumsum(ledgers.steps[columns["ledger"]], out=group[1:])
    return Spans(ledgers, np.array(low), stores=np.array(members, dtype=np.int64), group=group, **columns)


def _pieces(
    one: LedgerEnsembles, far: LedgerProgress, furthest: int
) -> Iterator[tuple[int, int, Obligation, Segment | None]]:
    """Yield first entry, last entry, obligation, and the segment that names the stores."""
    end = max(furthest, far.confirmed) if one.last_entry is None else one.last_entry
    start = one.segments[0].first_entry
    if start:
        yield 0, start - 1, Obligation.NOTHING, None
    for number, segment in enumerate(one.segments):
        follows = one.segments[number + 1 :]
        last = min(end, follows[0].first_entry - 1) if follows else end
        for first, until, owed in _borders(one, far):
            if max(first, segment.first_entry) <= min(until, last):
                yield max(first, segment.first_entry), min(until, last), owed, segment
    if one.last_entry is not None and one.last_entry < _ENTRY_MAX:
        yield max(end + 1, start), _ENTRY_MAX, Obligation.NOTHING, None


def _borders(one: LedgerEnsembles, far: LedgerProgress) -> list[tuple[int, int, Obligation]]:
    if one.last_entry is not None:
        return [(0, _ENTRY_MAX, Obligation.CLOSED)]
    settled, confirmed = min(far.settled, far.confirmed), far.confirmed
    return [
        (0, settled, Obligation.OPEN),
        (settled + 1, confirmed, Obligation.IN_FLIGHT),
        (confirmed + 1, _ENTRY_MAX, Obligation.UNCONFIRMED),
    ]
