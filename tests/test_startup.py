"""`import storage` and `ledgerstore --help` start quickly."""

from __future__ import annotations

import pytest
from startup import beyond_python


@pytest.mark.slow
def test_importing_and_help_take_less_than_their_limits() -> None:
    milliseconds = beyond_python(rounds=9)
    assert milliseconds["import storage"] < 40
    assert milliseconds["ledgerstore --help"] < 80
