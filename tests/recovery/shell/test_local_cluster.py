"""The table of a cluster on this machine, on terminals of any width."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.local_cluster import COLUMNS, fitting

if TYPE_CHECKING:
    from recovery.shell.output import Row

ROW: Row = {
    "name": "bookie-1",
    "state": "up",
    "registered": "writable",
    "address": "127.0.0.1:45703",
    "pid": 4_194_303,
    "ledgers": 7,
    "bytes": 1_234_567_890,
}


def test_a_terminal_of_usual_width_shows_all_columns() -> None:
    assert fitting([ROW], 80) == COLUMNS


def test_a_narrow_terminal_leaves_out_what_matters_least_but_never_which_process_is_up() -> None:
    def names(width: int) -> list[str]:
        return [column.name for column in fitting([ROW], width)]

    assert names(75) == ["name", "state", "registered", "address", "ledgers", "bytes"]
    assert names(60) == ["name", "state", "registered", "address", "ledgers"]
    assert names(10) == ["name", "state", "address"]
