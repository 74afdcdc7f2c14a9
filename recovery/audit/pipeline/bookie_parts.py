"""The findings and checks of one part of a bookie, which has only some of its directories."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recovery.audit.pipeline.check_results import NOT_RUN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.audit_report import Check
    from recovery.bookkeeper.directories import BookiePart

_OF_JOURNALS = ("JRN-", "MRK-")
_JOURNAL_CHECKS = frozenset({"mark", "journals", "journals-before", "journals-indexed"})


def about_part(findings: Iterable[Finding], part: BookiePart | None) -> tuple[Finding, ...]:
    """Return the findings that the files of the part can show."""
    return tuple(one for one in findings if part is None or _is_about(one, part))


def _is_about(finding: Finding, part: BookiePart) -> bool:
    if finding.kind == "JRN-006":
        # Otherwise the entries of the journal may be in the logs of another part.
        return part.has_all_of_its_ledgers
    if part.journal is None:
        has_no_journal = finding.kind.startswith(_OF_JOURNALS)
        return not has_no_journal and not (finding.kind == "CKE-001" and finding.file.startswith("journal/"))
    return True


def checks_of_part(checks: Iterable[Check], part: BookiePart | None) -> tuple[Check, ...]:
    """Return the checks of the part. A check that needs the directories of another part is not run."""
    return tuple(check if part is None else _asked_of(check, part) for check in checks)


def _asked_of(check: Check, part: BookiePart) -> Check:
    if part.journal is None and check.id in _JOURNAL_CHECKS:
        return replace(check, status=NOT_RUN, why="another directory has the journal", findings=0)
    if check.id == "journals-indexed" and not part.has_all_of_its_ledgers:
        return replace(check, status=NOT_RUN, why="entries of a journal are in several directories")
    return check
