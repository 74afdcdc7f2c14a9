"""What is told of pieces that have too few copies, and of copies that nobody asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recovery.verify.catalogue import KINDS
from recovery.verify.finding import Severity
from recovery.verify.replica_spans import Owed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.verify.finding import Finding
    from recovery.verify.replica_rules import Judgement
    from recovery.verify.replica_sweep import Pieces
    from recovery.verify.runs import Numbers

_NOTES = {
    Owed.CLOSED: "",
    Owed.OPEN: "the ledger is open",
    Owed.ON_ITS_WAY: "the copy may be on its way",
    Owed.UNCONFIRMED: "not known to be confirmed",
}


def severity(owed: Owed, copies: int, ack_quorum: int) -> Severity:
    """How grave it is that copies are missing, by what was promised."""
    match owed:
        case Owed.UNCONFIRMED | Owed.NOTHING:
            return Severity.INFORMATION
        case Owed.CLOSED:
            return Severity.ERROR
        case Owed.OPEN:
            return Severity.ERROR if copies < ack_quorum else Severity.WARNING
        case Owed.ON_ITS_WAY:
            return Severity.ERROR if copies < ack_quorum else Severity.INFORMATION


class Teller:
    """Makes findings of rows."""

    def __init__(self, judgement: Judgement) -> None:
        self._held = judgement.held
        self._ensembles = judgement.ensembles
        self._spans = judgement.spans
        self._swept = judgement.swept

    def too_few(self, copies: Numbers) -> Iterator[Finding]:
        """One for each store that lacks a piece. `copies` says how many each piece has."""
        pieces = self._swept.pieces
        lacking = np.flatnonzero(copies < self._spans.write[pieces["span"]])
        beside = self._beside(pieces[lacking])
        for piece, number in zip(pieces[lacking].tolist(), copies[lacking].tolist(), strict=True):
            yield from self._lacking(piece, number, beside)

    def _beside(self, pieces: Pieces) -> dict[tuple[int, int, int], str]:
        """The stores beside the write set in those groups, by span, residue and bit."""
        groups = self._spans.group[pieces["span"]] + pieces["residue"]
        placed = self._swept.placed[self._swept.placed["column"] < 0]
        placed = placed[np.isin(self._spans.group[placed["span"]] + placed["residue"], groups)]
        found = placed[["span", "residue", "bit", "store"]].tolist()
        return {(span, residue, bit): self._held[store].name for span, residue, bit, store in found}

    def _lacking(
        self, piece: tuple[int, ...], copies: int, beside: dict[tuple[int, int, int], str]
    ) -> Iterator[Finding]:
        span, residue, first, last, held = piece
        due = self._due(span, residue)
        bits = [bit for bit in range(held.bit_length()) if held >> bit & 1]
        names = [beside[span, residue, bit] for bit in bits if bit >= len(due)]
        owed = Owed(int(self._spans.owed[span]))
        having = [self._held[store].name for bit, store in enumerate(due) if bit in bits]
        told = [f"should be on {self._names(due)}; is on {', '.join(having) or 'none of them'}"]
        told += [f"on {', '.join(sorted(names))}, where it need not be"] if names else []
        told += self._spacing(span, first, last) + [note for note in (_NOTES[owed],) if note]
        for store in (store for bit, store in enumerate(due) if bit not in bits):
            yield KINDS["RPL-001"].at(
                severity=severity(owed, copies, int(self._spans.ack[span])),
                store=self._held[store].store,
                **self._where(span, residue, first, last),
                detail="; ".join(told),
            )

    def too_many(self) -> Iterator[Finding]:
        """Copies that a store's place does not give it."""
        placed = self._swept.placed[self._swept.placed["column"] < 0]
        for span, residue, store, first, last in placed[
            ["span", "residue", "store", "first", "last"]
        ].tolist():
            told = [self._why_too_many(span, residue, first), *self._spacing(span, first, last)]
            yield KINDS["RPL-003"].at(
                store=self._held[store].store,
                **self._where(span, residue, first, last),
                detail="; ".join(told),
            )

    def _why_too_many(self, span: int, residue: int, first: int) -> str:
        if self._spans.write[span]:
            return f"should be on {self._names(self._due(span, residue))}"
        ensembles = self._ensembles[self._spans.ledger[span]]
        is_before = first * ensembles.step + residue < ensembles.segments[0].first_entry
        return "in front of the ledger's first segment" if is_before else "behind the ledger's last entry"

    def _due(self, span: int, residue: int) -> list[int]:
        """The stores of the write set, in its order."""
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
