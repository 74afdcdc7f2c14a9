"""The page of BookKeeper's own tests names numbers that have a test here, and the other way round."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_every_number_on_the_page_has_a_test_and_every_test_is_on_the_page() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    tests = (ROOT / "tests" / "storage" / "test_conformance.py").read_text()
    told = {number.lower() for number in re.findall(r"^\| ([JE]\d+) \|", page, re.MULTILINE)}
    tested = set(re.findall(r"^def test_([je]\d+)_", tests, re.MULTILINE))
    assert told == tested
    assert len(told) == 17
