"""Starting is cheap."""

from __future__ import annotations

import pytest
from startup import beyond_python


@pytest.mark.slow
def test_importing_and_help_cost_less_than_their_bars() -> None:
    milliseconds = beyond_python(rounds=9)
    assert milliseconds["import storage"] < 40
    assert milliseconds["ledgerstore --help"] < 80
