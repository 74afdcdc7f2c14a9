"""The command that shows what a finding is about."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from storage import filenames
from storage.filenames import FileKind

if TYPE_CHECKING:
    from recovery.verify.finding import Finding

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
"""About files that may not be there to be looked into."""


def command(finding: Finding) -> str:
    """What to type to look at the record, the ledger or the directory."""
    store = shlex.quote(finding.store or ".")
    is_there = finding.offset is not None or finding.kind not in _ABSENT
    is_record = finding.kind[:3] in _RECORDS or filenames.parse(finding.file).kind in _EXPLAINED
    if finding.file and is_there and is_record:
        return f"ledgerstore explain {shlex.quote(finding.place)} --dir {store}"
    if finding.ledger_id is None:
        return f"ledgerstore files {store}"
    if finding.first_entry is None:
        return f"ledgerstore ledger {finding.ledger_id} {store}"
    last = finding.first_entry if finding.last_entry is None else finding.last_entry
    return f"ledgerstore read {finding.ledger_id} {store} --from {finding.first_entry} --to {last}"


def example(kind: str) -> str:
    """The same for a kind of finding, in capitals what a finding fills in."""
    if kind == "LGR-002":
        return "ledgerstore explain ledgers.rows@OFFSET --dir STORE"
    match kind[:3]:
        case "JRN" | "MRK" | "ELG":
            return "ledgerstore explain FILE@OFFSET --dir STORE"
        case "CKE" | "DIR":
            return "ledgerstore files STORE"
        case _:
            return "ledgerstore read LEDGER STORE --from FIRST_ENTRY --to LAST_ENTRY"
