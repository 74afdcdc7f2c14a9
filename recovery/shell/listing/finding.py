"""The rows of findings.

severity                  error, warning, information
kind, title               its id, as `ledgerstore explain` takes it, and what the id means
store, file               the path of the store as it was given, and the name of the file
offset, end               extent in the file; null if the finding has no place in the file
ledger                    the ledger, and its affected entries, both ends included:
first_entry, last_entry
count                     number of entries, rows or bytes, depending on the kind
detail                    an explanation
look                      the command that shows the place
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.findings.finding import Severity
from recovery.audit.report import commands
from recovery.audit.report.figures import WORDS
from recovery.shell.output import Column, RowTone, number_column, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.findings.finding import Finding
    from recovery.shell.output import Cell, Row


_TONES = {
    Severity.ERROR: RowTone.BAD,
    Severity.WARNING: RowTone.INFORMATION,
    Severity.INFORMATION: RowTone.PLAIN,
}


def _words(row: Mapping[str, Cell], name: str) -> str:
    detail = row[name]
    return printable(f"{row['title']}: {detail}" if detail else f"{row['title']}")


_STORE = Column("store", rank=1)
_COLUMNS = [
    Column("severity", rank=4),
    Column("kind"),
    Column("file"),
    number_column("offset"),
    number_column("end", rank=5),
    number_column("ledger", rank=2),
    number_column("first_entry", rank=3),
    number_column("last_entry", rank=6),
    number_column("count", rank=7),
    Column("detail", text=_words),
]


def finding_columns(stores: int) -> list[Column]:
    """Return the columns of a table of findings. The store has a column only if there are several."""
    return [_STORE, *_COLUMNS] if stores > 1 else _COLUMNS


def finding_row(finding: Finding) -> Row:
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
        "look": commands.command(finding),
    }


def password_misfit(ledger_id: int) -> str:
    """Say that the password of a ledger is wrong. Printed once, not for each entry."""
    return f"ledger {ledger_id}: wrong password: no entry verifies with it; its entries stay unverified"


def coloured_finding_row(finding: Finding) -> Row:
    """Return the row of a finding for a table, with the tone of its severity."""
    return finding_row(finding) | {"tone": _TONES[finding.severity].value}
