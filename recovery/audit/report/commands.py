"""The command that shows what a finding is about."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.disk.filenames import FileKind

if TYPE_CHECKING:
    from recovery.audit.findings.finding import Finding

_EXPLAINED = frozenset(
    {
        FileKind.JOURNAL,
        FileKind.ENTRY_LOG,
        FileKind.LAST_MARK,
        FileKind.LEDGER_ROWS,
    }
)
_RECORDS = frozenset({"ELG", "JRN"})
_ABSENT = frozenset({"MRK-002", "ELG-005", "CKE-001"})
"""Kinds about files that may not exist."""


def command(finding: Finding) -> str:
    """Return the command that shows the record, the ledger or the directory."""
    store = shlex.quote(finding.store or ".")
    is_there = finding.offset is not None or finding.kind not in _ABSENT
    is_record = finding.kind[:3] in _RECORDS or filenames.parse(finding.file).kind in _EXPLAINED
    if finding.file and is_there and is_record:
        return f"ledgerstore explain {shlex.quote(finding.place)} {store}"
    if finding.ledger_id is None:
        return f"ledgerstore files {store}"
    if finding.first_entry is None:
        return f"ledgerstore ledger {finding.ledger_id} {store}"
    last = finding.first_entry if finding.last_entry is None else finding.last_entry
    return f"ledgerstore read {finding.ledger_id} {store} --from {finding.first_entry} --to {last}"


def example(kind: str) -> str:
    """Return the command for a kind of finding, with placeholders in capitals."""
    if kind == "LGR-002":
        return "ledgerstore explain ledgers.rows@OFFSET STORE"
    match kind[:3]:
        case "JRN" | "MRK" | "ELG":
            return "ledgerstore explain FILE@OFFSET STORE"
        case "CKE" | "DIR":
            return "ledgerstore files STORE"
        case _:
            return "ledgerstore read LEDGER STORE --from FIRST_ENTRY --to LAST_ENTRY"
