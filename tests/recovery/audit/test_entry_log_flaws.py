"""The flaws of an entry log that are kept if there are many."""

from __future__ import annotations

from recovery.audit.model.scan_results import FlawAt, FlawKind
from recovery.audit.scan.entry_log_flaws import merged_flaws


def _confirmed(offset: int, ledger_id: int, entry_id: int) -> FlawAt:
    return FlawAt(FlawKind.CONFIRMED, None, offset, offset + 50, ledger_id, entry_id)


def test_the_first_and_last_of_several_entries_that_confirm_themselves_are_known() -> None:
    parts = [
        [_confirmed(1024, 1, 5), _confirmed(1100, 2, 0)],
        [_confirmed(1200, 1, 9), _confirmed(1300, 1, 7)],
    ]
    one, other = merged_flaws(parts)
    assert (one.ledger_id, one.entry_id, one.last_entry_id, one.count) == (1, 5, 9, 3)
    assert (one.offset, one.end) == (1024, 1350)
    assert (other.ledger_id, other.entry_id, other.last_entry_id, other.count) == (2, 0, None, 1)


def test_the_flaws_do_not_depend_on_how_the_log_was_cut() -> None:
    flaws = [_confirmed(1024 + 60 * number, number % 3, 40 - number) for number in range(30)]
    whole = merged_flaws([flaws])
    for cut in range(len(flaws)):
        assert merged_flaws([merged_flaws([flaws[:cut]]), merged_flaws([flaws[cut:]])]) == whole
