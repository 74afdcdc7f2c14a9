"""What is kept of an entry log's flaws when there are many."""

from __future__ import annotations

from recovery.audit.log_flaws import together
from recovery.verify.parts import FlawAt, FlawKind


def _confirmed(offset: int, ledger_id: int, entry_id: int) -> FlawAt:
    return FlawAt(FlawKind.CONFIRMED, None, offset, offset + 50, ledger_id, entry_id)


def test_of_several_entries_that_confirm_themselves_the_first_and_the_last_are_known() -> None:
    parts = [
        [_confirmed(1024, 1, 5), _confirmed(1100, 2, 0)],
        [_confirmed(1200, 1, 9), _confirmed(1300, 1, 7)],
    ]
    one, other = together(parts)
    assert (one.ledger_id, one.entry_id, one.last_entry_id, one.count) == (1, 5, 9, 3)
    assert (one.offset, one.end) == (1024, 1350)
    assert (other.ledger_id, other.entry_id, other.last_entry_id, other.count) == (2, 0, None, 1)


def test_it_does_not_matter_how_the_log_was_cut() -> None:
    flaws = [_confirmed(1024 + 60 * number, number % 3, 40 - number) for number in range(30)]
    whole = together([flaws])
    for cut in range(len(flaws)):
        assert together([together([flaws[:cut]]), together([flaws[cut:]])]) == whole
