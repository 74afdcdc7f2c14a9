"""A finding: one thing about files that is not as it should be, and where."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.IntEnum):
    """How grave it is, the gravest first."""

    ERROR = 0
    """Acknowledged data is damaged, gone or cannot be reached."""
    WARNING = 1
    """Something is wrong that costs no acknowledged data, or none yet."""
    INFORMATION = 2
    """Nothing is wrong, and an auditor wants to know it: a torn tail, a gap, entries without a digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding. `kind` is its id in the catalogue.

    Two engines that look at the same files find equal findings: everything in it is told by the files.
    """

    kind: str
    severity: Severity
    store: str = ""
    """Which store, where several are looked at: the path that was given for it."""
    file: str = ""
    """The file's name, without its directory; empty where it is about no single file."""
    offset: int | None = None
    """Where in the file it begins: in journals and entry logs at a length word, or at a damaged byte."""
    end: int | None = None
    """Behind the last byte that is wrong, where that is known."""
    ledger_id: int | None = None
    first_entry: int | None = None
    last_entry: int | None = None
    """Both included; the same where it is about one entry."""
    count: int = 1
    """How many of whatever is wrong: entries, index rows, bytes of a gap; see the catalogue."""
    detail: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether it is more than information: what an exit code tells."""
        return self.severity is not Severity.INFORMATION

    @property
    def place(self) -> str:
        """Where, in a form that `ledgerstore explain` takes."""
        if not self.file:
            return ""
        return self.file if self.offset is None else f"{self.file}@{self.offset}"


_NONE = -1


def order(finding: Finding) -> tuple[str, int, str, str, int, int, int, int, str]:
    """The total order in which findings are told: by store, the gravest first, then by kind and place."""
    return (
        finding.store,
        finding.severity,
        finding.kind,
        finding.file,
        _NONE if finding.offset is None else finding.offset,
        _NONE if finding.ledger_id is None else finding.ledger_id,
        _NONE if finding.first_entry is None else finding.first_entry,
        finding.count,
        finding.detail,
    )
