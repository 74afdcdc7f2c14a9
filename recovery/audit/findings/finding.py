"""A finding: something about files that is not as it should be, and where it is."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.IntEnum):
    """How severe a finding is, the most severe first."""

    ERROR = 0
    """Acknowledged data is damaged, lost or unreachable."""
    WARNING = 1
    """Something is wrong that has not cost acknowledged data, or not yet."""
    INFORMATION = 2
    """Nothing is wrong, but an operator may want to know: a torn tail, a gap, entries without a digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding. `kind` is its id in the catalogue.

    Two engines that read the same files make equal findings, because every field depends on the files only.
    """

    kind: str
    severity: Severity
    store: str = ""
    """The path that was given for the store."""
    file: str = ""
    """The name of the file without its directory; empty if the finding is about no single file."""
    offset: int | None = None
    """The offset in the file: in journals and entry logs that of a length word, or of a damaged byte."""
    end: int | None = None
    """The offset after the last wrong byte, if it is known."""
    ledger_id: int | None = None
    first_entry: int | None = None
    last_entry: int | None = None
    """Both ids are included; they are equal if the finding is about one entry."""
    count: int = 1
    """How many things are wrong: entries, index rows, bytes of a gap; the catalogue says which."""
    detail: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether the finding is an error or a warning. It decides the exit code."""
        return self.severity is not Severity.INFORMATION

    @property
    def place(self) -> str:
        """The place in the form that `ledgerstore explain` takes."""
        if not self.file:
            return ""
        return self.file if self.offset is None else f"{self.file}@{self.offset}"


_NONE = -1


def order(finding: Finding) -> tuple[str, int, str, str, int, int, int, int, str]:
    """Return the sort key of a report: by store, most severe first, then by kind and place."""
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
