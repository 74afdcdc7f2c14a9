"""Each promise in docs/durability.md links tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "durability.md").read_text()
LINKS = re.findall(r"\[(test_\w+)\]\(\.\./(tests/[\w/]+\.py)\)", PAGE)


def promises() -> list[str]:
    """Return the promises: the list items before the section on what is not promised."""
    promised = PAGE.split("## What is not promised")[0]
    return re.findall(r"^\* (.*?)(?=^\* |^## |\Z)", promised, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("name", "file"), LINKS)
def test_a_test_that_is_named_exists(name: str, file: str) -> None:
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


@pytest.mark.parametrize("sentence", promises(), ids=lambda sentence: sentence[:40])
def test_no_promise_is_without_a_test(sentence: str) -> None:
    assert re.search(r"\[test_\w+\]", sentence)
