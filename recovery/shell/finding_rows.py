"""The rows of findings.

severity                  error, warning, information
kind, title               its id, as `ledgerstore explain` takes it, and what that means
store, file               the path that was given, and the file's name
offset, end               in the file; null where it is about no place in it
ledger                    and the entries of it that it is about, both included:
first_entry, last_entry
count                     of entries, rows, bytes … as its kind counts
detail                    words
look                      the command that shows it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.report import looking
from recovery.audit.report.figures import WORDS
from recovery.shell.columns import Column, Tone, numbers, printable
from recovery.verify.catalogue import KINDS
from recovery.verify.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.shell.columns import Cell, Row
    from recovery.verify.finding import Finding

_TONES = {Severity.ERROR: Tone.BAD, Severity.WARNING: Tone.INFORMATION, Severity.INFORMATION: Tone.PLAIN}


def _words(row: Mapping[str, Cell], name: str) -> str:
    told = row[name]
    return printable(f"{row['title']}: {told}" if told else f"{row['title']}")


_STORE = Column("store", rank=1)
_COLUMNS = [
    Column("severity", rank=4),
    Column("kind"),
    Column("file"),
    numbers("offset"),
    numbers("end", rank=5),
    numbers("ledger", rank=2),
    numbers("first_entry", rank=3),
    numbers("last_entry", rank=6),
    numbers("count", rank=7),
    Column("detail", text=_words),
]


def columns(stores: int) -> list[Column]:
    """Of one store nobody needs to be told which."""
    return [_STORE, *_COLUMNS] if stores > 1 else _COLUMNS


def row(finding: Finding) -> Row:
    return {
        "severity": WORDS[finding.severity],
        "kind": finding.kind,
        "title": KINDS[finding.kind].title,
        "store": finding.store,
        "file": finding.file or None,
        "offset": finding.offset,
        "end": finding.end,
        "ledger": finding.ledger_id,
        "first_entry": finding.first_entry,
        "last_entry": finding.last_entry,
        "count": finding.count,
        "detail": finding.detail or None,
        "look": looking.command(finding),
    }


def misfit(ledger_id: int) -> str:
    """Said once for all its entries."""
    return f"ledger {ledger_id}: the password does not fit: no entry verifies with it; they stay unverified"


def coloured(finding: Finding) -> Row:
    """The same for a table."""
    return row(finding) | {"tone": _TONES[finding.severity].value}
