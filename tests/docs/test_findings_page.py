"""docs/findings.md documents every kind of finding as the catalogue does, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from recovery.audit.findings.catalogue import KINDS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "findings.md").read_text()


def test_each_kind_of_finding_has_one_row_on_the_page() -> None:
    expected = [
        f"| `{kind.id}` | {kind.severity.name.lower()} | {kind.title} | {kind.cause} | {kind.remedy} "
        f"| {kind.counts} |"
        for kind in KINDS.values()
    ]
    assert re.findall(r"^\| `.*\|$", PAGE, re.MULTILINE) == expected
