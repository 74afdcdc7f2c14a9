"""Check replicas: entries with too few copies, and copies that are not required.

The input is what every store holds and serves, as runs (`HeldEntries`), and where copies have to be, as
ensembles (`recovery.audit.model.ensemble`, which says what is an error). Whether copies are equal is decided
in `recovery.audit.checks.replica_fingerprints`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.checks.replica_spans import Obligation, spans_of
from recovery.audit.checks.replica_sweep import sweep
from recovery.audit.checks.stripes import STRIPE, to_stripes, united
from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.model.audit_report import CopyCounts, StoreShare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.audit.checks.replica_spans import Spans
    from recovery.audit.checks.replica_sweep import Pieces, Placed, SweepResult
    from recovery.audit.checks.stripes import LedgerNumbers, Stripes
    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.ensemble import LedgerEnsembles, LedgerProgress
    from recovery.audit.model.runs import Numbers, Runs

_NOTES = {
    Obligation.CLOSED: "",
    Obligation.OPEN: "the ledger is open",
    Obligation.IN_FLIGHT: "the copy may be in flight",
    Obligation.UNCONFIRMED: "not known to be confirmed",
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HeldEntries:
    """The entries that one store holds."""

    name: str
    """The name of the store in the ensembles."""
    store: str
    """The path of the store in findings."""
    runs: Runs
    """The runs of what it serves. Only the ids count."""
    file_runs: Runs
    """The same entries with their fingerprints, as its files hold them. Copies that it does not serve may be
    included.

    This is the same array if one cannot be told from the other.
    """


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaVerdict:
    """The result. Findings are made on request, because there may be many."""

    ensembles: Sequence[LedgerEnsembles]
    held: Sequence[HeldEntries]
    spans: Spans
    swept: SweepResult

    def findings(self) -> Iterator[Finding]:
        """Yield findings of missing copies, then of copies that are not required."""
        maker = FindingMaker(self)
        yield from maker.missing_copies(copies(self.swept.pieces, self.spans))
        yield from maker.unrequired_copies()

    def coverage(self) -> tuple[CopyCounts, ...]:
        """Return the number of copies by ledger, in the order of ids."""
        spans, pieces = self.spans, self.swept.pieces
        most = max((one.write_quorum for one in self.ensembles), default=0)
        table = np.zeros((len(self.ensembles), most + 1), dtype=np.int64)
        np.add.at(table, (spans.ledger[pieces["span"]], copies(pieces, spans)), _sizes(pieces))
        return tuple(
            CopyCounts(one.ledger_id, one.last_entry is None, tuple(row[: one.write_quorum + 1].tolist()))
            for one, row in zip(self.ensembles, table, strict=True)
        )

    def stores(self) -> dict[str, StoreShare]:
        """Return by the stores' names what each should hold and does hold."""
        spans, pieces, placed = self.spans, self.swept.pieces, self.swept.placed
        should, held, beside = np.zeros((3, len(self.held)), dtype=np.int64)
        for number in range(int(spans.write.max(initial=0))):
            some = pieces[spans.write[pieces["span"]] > number]
            np.add.at(should, spans.place(some["span"], some["residue"], number), _sizes(some))
        is_due = placed["column"] >= 0
        np.add.at(held, placed["store"][is_due], _sizes(placed[is_due]))
        np.add.at(beside, placed["store"][~is_due], _sizes(placed[~is_due]))
        return {
            one.name: StoreShare(*numbers)
            for one, *numbers in zip(self.held, should.tolist(), held.tolist(), beside.tolist(), strict=True)
        }

    def unsettled(self) -> tuple[int, ...]:
        """Return open ledgers with copies missing after what is known to be confirmed.

        If more of such a ledger turns out to be confirmed, these missing copies are more severe.
        """
        spans, pieces = self.spans, self.swept.pieces
        missing = copies(pieces, spans) < spans.write[pieces["span"]]
        loose = np.isin(spans.owed[pieces["span"]], (Obligation.IN_FLIGHT, Obligation.UNCONFIRMED))
        return tuple(np.unique(spans.ledgers.ids[spans.ledger[pieces["span"][missing & loose]]]).tolist())


def judge_copies(
    ensembles: Sequence[LedgerEnsembles], held: Sequence[HeldEntries], progress: Mapping[int, LedgerProgress]
) -> ReplicaVerdict:
    """Compare what is held with what should be. Each store that an ensemble names is in `held`."""
    ensembles = sorted(ensembles, key=lambda one: one.ledger_id)
    numbers = {one.name: number for number, one in enumerate(held)}
    ledgers = spans_of(ensembles, numbers, {}, [-1] * len(ensembles)).ledgers
    rows = [united(to_stripes(one.runs, ledgers, number).rows) for number, one in enumerate(held)]
    united_rows = np.concatenate(rows) if rows else np.empty(0, dtype=STRIPE)
    spans = spans_of(ensembles, numbers, progress, furthest(united_rows, ledgers))
    return ReplicaVerdict(ensembles, held, spans, sweep(united_rows, spans))


def furthest(rows: Stripes, ledgers: LedgerNumbers) -> Numbers:
    """Return the last entry of each ledger that any store has, or -1."""
    last = np.full(len(ledgers.ids), -1, dtype=np.int64)
    np.maximum.at(last, rows["ledger"], rows["last"] * ledgers.steps[rows["ledger"]] + rows["residue"])
    return last


def _sizes(rows: Pieces | Placed) -> Numbers:
    sizes: Numbers = rows["last"] - rows["first"] + 1
    return sizes


def copies(pieces: Pieces, spans: Spans) -> Numbers:
    """Return how many of the stores that should hold a piece hold it."""
    counted = np.zeros(len(pieces), dtype=np.int64)
    write = spans.write[pieces["span"]]
    for number in range(int(write.max(initial=0))):
        counted += (write > number) & (pieces["held"] >> number & 1 == 1)
    return counted


# ── findings of pieces and copies ────────────────────────────────────────────────────────────────────────


def severity(owed: Obligation, copies: int, ack_quorum: int) -> Severity:
    """Return how severe it is that copies are missing, depending on what was promised."""
    match owed:
        case Obligation.UNCONFIRMED | Obligation.NOTHING:
            return Severity.INFORMATION
        case Obligation.CLOSED:
            return Severity.ERROR
        case Obligation.OPEN:
            return Severity.ERROR if copies < ack_quorum else Severity.WARNING
        case Obligation.IN_FLIGHT:
            return Severity.ERROR if copies < ack_quorum else Severity.INFORMATION


class FindingMaker:
    """Makes findings of rows."""

    def __init__(self, verdict: ReplicaVerdict) -> None:
        self._held = verdict.held
        self._ensembles = verdict.ensembles
        self._spans = verdict.spans
        self._swept = verdict.swept

    def missing_copies(self, copies: Numbers) -> Iterator[Finding]:
        """Yield one finding for each store that lacks a piece. `copies` is the number of copies of each
        piece.
        """
        pieces = self._swept.pieces
        lacking = np.flatnonzero(copies < self._spans.write[pieces["span"]])
        outside = self._outside_write_set(pieces[lacking])
        for piece, number in zip(pieces[lacking].tolist(), copies[lacking].tolist(), strict=True):
            yield from self._lacking(piece, number, outside)

    def _outside_write_set(self, pieces: Pieces) -> dict[tuple[int, int, int], str]:
        """Return the stores outside the write set that hold these groups, by span, residue and bit."""
        groups = self._spans.group[pieces["span"]] + pieces["residue"]
        placed = self._swept.placed[self._swept.placed["column"] < 0]
        placed = placed[np.isin(self._spans.group[placed["span"]] + placed["residue"], groups)]
        found = placed[["span", "residue", "bit", "store"]].tolist()
        return {(span, residue, bit): self._held[store].name for span, residue, bit, store in found}

    def _lacking(
        self, piece: tuple[int, ...], copies: int, outside: dict[tuple[int, int, int], str]
    ) -> Iterator[Finding]:
        span, residue, first, last, held = piece
        due = self._due(span, residue)
        bits = [bit for bit in range(held.bit_length()) if held >> bit & 1]
        names = [outside[span, residue, bit] for bit in bits if bit >= len(due)]
        owed = Obligation(int(self._spans.owed[span]))
        having = [self._held[store].name for bit, store in enumerate(due) if bit in bits]
        details = [f"should be on {self._names(due)}; is on {', '.join(having) or 'none of them'}"]
        details += [f"on {', '.join(sorted(names))}, where it need not be"] if names else []
        details += self._spacing(span, first, last) + [note for note in (_NOTES[owed],) if note]
        for store in (store for bit, store in enumerate(due) if bit not in bits):
            yield KINDS["RPL-001"].at(
                severity=severity(owed, copies, int(self._spans.ack[span])),
                store=self._held[store].store,
                **self._where(span, residue, first, last),
                detail="; ".join(details),
            )

    def unrequired_copies(self) -> Iterator[Finding]:
        """Yield findings for copies on stores that need not hold them."""
        placed = self._swept.placed[self._swept.placed["column"] < 0]
        for span, residue, store, first, last in placed[
            ["span", "residue", "store", "first", "last"]
        ].tolist():
            details = [self._why_unrequired(span, residue, first), *self._spacing(span, first, last)]
            yield KINDS["RPL-003"].at(
                store=self._held[store].store,
                **self._where(span, residue, first, last),
                detail="; ".join(details),
            )

    def _why_unrequired(self, span: int, residue: int, first: int) -> str:
        if self._spans.write[span]:
            return f"should be on {self._names(self._due(span, residue))}"
        ensembles = self._ensembles[self._spans.ledger[span]]
        is_before = first * ensembles.step + residue < ensembles.segments[0].first_entry
        return "before the ledger's first segment" if is_before else "after the ledger's last entry"

    def _due(self, span: int, residue: int) -> list[int]:
        """Return the stores of the write set, in its order."""
        spans = self._spans
        start, size = int(spans.members[span]), int(spans.size[span])
        return [int(spans.stores[start + (residue + number) % size]) for number in range(spans.write[span])]

    def _names(self, stores: list[int]) -> str:
        return ", ".join(self._held[store].name for store in stores)

    def _spacing(self, span: int, first: int, last: int) -> list[str]:
        step = int(self._spans.step[span])
        return [f"one entry in {step}"] if step > 1 and first != last else []

    def _where(self, span: int, residue: int, first: int, last: int) -> dict[str, int]:
        ensembles = self._ensembles[self._spans.ledger[span]]
        return {
            "ledger_id": ensembles.ledger_id,
            "first_entry": first * ensembles.step + residue,
            "last_entry": last * ensembles.step + residue,
            "count": last - first + 1,
        }
