"""Replicas: entries with too few copies, and copies that nobody asked for.

What every store holds and serves is given as runs (`Held`), and where the copies have to be as ensembles
(`recovery.verify.ensemble`, which says what is an error and what is not). Whether copies agree is asked in
`recovery.verify.replica_prints`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recovery.verify.replica_findings import Teller
from recovery.verify.replica_spans import Owed, spans_of
from recovery.verify.replica_sweep import sweep
from recovery.verify.stretches import STRETCH, stretched, united

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.verify.ensemble import Ensembles, Progress
    from recovery.verify.finding import Finding
    from recovery.verify.replica_spans import Spans
    from recovery.verify.replica_sweep import Pieces, Placed, Swept
    from recovery.verify.runs import Numbers, Runs
    from recovery.verify.stretches import Ledgers, Stretches


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Held:
    """What one store holds."""

    name: str
    """As the ensembles call it."""
    store: str
    """As findings call it."""
    runs: Runs
    """What it serves: which entries, and nothing else of them counts."""
    prints: Runs
    """The same entries with their fingerprints, as its files hold them; perhaps copies it does not serve too.

    The same array where nothing tells one from the other.
    """


class Share(NamedTuple):
    """In entries: what a store should hold, how much of that it does, and what it holds beside."""

    should: int
    held: int
    beside: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many entries of a ledger have how many copies, of those that should be there."""

    ledger_id: int
    is_open: bool
    copies: tuple[int, ...]
    """At each number of copies, from 0 to the write quorum, the number of entries."""

    @property
    def entries(self) -> int:
        return sum(self.copies)


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """What was found. Findings are made when they are asked for: there may be many."""

    ensembles: Sequence[Ensembles]
    held: Sequence[Held]
    spans: Spans
    swept: Swept

    def findings(self) -> Iterator[Finding]:
        """Too few copies, then copies too many."""
        teller = Teller(self)
        yield from teller.too_few(copies(self.swept.pieces, self.spans))
        yield from teller.too_many()

    def coverage(self) -> tuple[Coverage, ...]:
        """By ledger, in the order of their ids."""
        spans, pieces = self.spans, self.swept.pieces
        most = max((one.write_quorum for one in self.ensembles), default=0)
        table = np.zeros((len(self.ensembles), most + 1), dtype=np.int64)
        np.add.at(table, (spans.ledger[pieces["span"]], copies(pieces, spans)), _sizes(pieces))
        return tuple(
            Coverage(one.ledger_id, one.last_entry is None, tuple(row[: one.write_quorum + 1].tolist()))
            for one, row in zip(self.ensembles, table, strict=True)
        )

    def stores(self) -> dict[str, Share]:
        """By the stores' names: what each should hold, what it does, and what it holds beside."""
        spans, pieces, placed = self.spans, self.swept.pieces, self.swept.placed
        should, held, beside = np.zeros((3, len(self.held)), dtype=np.int64)
        for number in range(int(spans.write.max(initial=0))):
            some = pieces[spans.write[pieces["span"]] > number]
            np.add.at(should, spans.place(some["span"], some["residue"], number), _sizes(some))
        is_due = placed["column"] >= 0
        np.add.at(held, placed["store"][is_due], _sizes(placed[is_due]))
        np.add.at(beside, placed["store"][~is_due], _sizes(placed[~is_due]))
        return {
            one.name: Share(*numbers)
            for one, *numbers in zip(self.held, should.tolist(), held.tolist(), beside.tolist(), strict=True)
        }

    def unsettled(self) -> tuple[int, ...]:
        """Open ledgers of which copies are missing behind what is known to be confirmed.

        If more of such a ledger turns out to be confirmed, these are graver than they look.
        """
        spans, pieces = self.spans, self.swept.pieces
        missing = copies(pieces, spans) < spans.write[pieces["span"]]
        loose = np.isin(spans.owed[pieces["span"]], (Owed.ON_ITS_WAY, Owed.UNCONFIRMED))
        return tuple(np.unique(spans.ledgers.ids[spans.ledger[pieces["span"][missing & loose]]]).tolist())


def judge(
    ensembles: Sequence[Ensembles], held: Sequence[Held], progress: Mapping[int, Progress]
) -> Judgement:
    """Compares what is held with what should be. Each store that an ensemble names is among `held`."""
    ensembles = sorted(ensembles, key=lambda one: one.ledger_id)
    numbers = {one.name: number for number, one in enumerate(held)}
    ledgers = spans_of(ensembles, numbers, {}, [-1] * len(ensembles)).ledgers
    rows = [united(stretched(one.runs, ledgers, number).rows) for number, one in enumerate(held)]
    united_rows = np.concatenate(rows) if rows else np.empty(0, dtype=STRETCH)
    spans = spans_of(ensembles, numbers, progress, furthest(united_rows, ledgers))
    return Judgement(ensembles, held, spans, sweep(united_rows, spans))


def furthest(rows: Stretches, ledgers: Ledgers) -> Numbers:
    """The last entry of each ledger that anybody has; -1 where nobody has any."""
    last = np.full(len(ledgers.ids), -1, dtype=np.int64)
    np.maximum.at(last, rows["ledger"], rows["last"] * ledgers.steps[rows["ledger"]] + rows["residue"])
    return last


def _sizes(rows: Pieces | Placed) -> Numbers:
    sizes: Numbers = rows["last"] - rows["first"] + 1
    return sizes


def copies(pieces: Pieces, spans: Spans) -> Numbers:
    """How many of the stores that should hold a piece do."""
    counted = np.zeros(len(pieces), dtype=np.int64)
    write = spans.write[pieces["span"]]
    for number in range(int(write.max(initial=0))):
        counted += (write > number) & (pieces["held"] >> number & 1 == 1)
    return counted
