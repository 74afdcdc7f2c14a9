"""Each number on the page of BookKeeper's own tests has a test here, and each such test is on the page."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "conformance.md").read_text()
TESTS = (
    "test_conformance.py",
    "test_conformance_store.py",
    "test_conformance_facts.py",
    "test_conformance_space.py",
)
RANGES = {
    "j": range(1, 30),
    "e": range(30, 45),
    "d": range(45, 57),
    "s": range(57, 64),
    "c": range(64, 75),
    "r": range(75, 77),
    "k": range(77, 80),
    "f": range(80, 81),
}

told, _, left_out = PAGE.partition("## Left out")
TOLD = re.findall(r"^\| ([JEDSCRKF]\d+) \|", told, re.MULTILINE)
LEFT_OUT = [
    number
    for row in re.findall(r"^\| ((?:[JEDSCRKF]\d+(?:, )?)+) \|", left_out, re.MULTILINE)
    for number in row.split(", ")
]


def test_every_number_on_the_page_has_a_test_and_every_test_is_on_the_page() -> None:
    tests = "".join((ROOT / "tests" / "storage" / name).read_text() for name in TESTS)
    tested = set(re.findall(r"^def test_([jedscrkf]\d+)_", tests, re.MULTILINE))
    assert {number.lower() for number in TOLD} == tested


def test_no_number_is_missing_and_none_occurs_twice() -> None:
    numbers = [number.lower() for number in (*TOLD, *LEFT_OUT)]
    assert len(numbers) == len(set(numbers))
    assert set(numbers) == {f"{letter}{number}" for letter, numbers in RANGES.items() for number in numbers}


AUTO_RECOVERY = PAGE.partition("## Auto-recovery")[2].partition("\n## ")[0]


def test_each_number_of_auto_recovery_is_on_the_page_and_has_a_test() -> None:
    numbers = re.findall(r"^\| (\d\d) \|", AUTO_RECOVERY, re.MULTILINE)
    assert numbers == [str(number) for number in range(46, 56)]
    tests = (ROOT / "tests" / "recovery" / "autorecovery" / "test_conformance.py").read_text()
    assert set(re.findall(r"^def test_(\d\d)_", tests, re.MULTILINE)) == set(numbers)


def test_each_defect_names_a_test_that_is_there() -> None:
    named = re.findall(r"\[(test_\w+)\]\(\.\./([\w/.]+\.py)\)", AUTO_RECOVERY)
    assert len(named) > 20
    assert [name for name, path in named if f"def {name}(" not in (ROOT / path).read_text()] == []
