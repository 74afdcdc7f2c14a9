"""The flaws of an entry log that are kept if there are many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.model.scan_results import FlawAt, FlawKind
from recovery.audit.scan import entry_log_flaws
from recovery.audit.scan.entry_log_flaws import merged_flaws

if TYPE_CHECKING:
    import pytest


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


def _digest(offset: int, ledger_id: int) -> FlawAt:
    return FlawAt(FlawKind.DIGEST, None, offset, offset + 50, ledger_id, entry_id=offset)


def test_further_flaws_are_counted_for_each_ledger_however_the_log_was_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(entry_log_flaws, "EXACT_MAX", 4)
    flaws = [_digest(1024 + 60 * number, number % 3) for number in range(20)]
    whole = merged_flaws([flaws])
    assert whole[:4] == tuple(flaws[:4])
    assert [(one.ledger_id, one.count, one.offset, one.end) for one in whole[4:]] == [
        (1, 6, flaws[4].offset, flaws[19].end),
        (2, 5, flaws[5].offset, flaws[17].end),
        (0, 5, flaws[6].offset, flaws[18].end),
    ]
    for cut in range(len(flaws)):
        assert merged_flaws([merged_flaws([flaws[:cut]]), merged_flaws([flaws[cut:]])]) == whole


def test_the_number_of_ledgers_that_are_counted_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_log_flaws, "EXACT_MAX", 1)
    monkeypatch.setattr(entry_log_flaws, "LEDGERS_MAX", 2)
    found = merged_flaws([[_digest(1024 + 60 * number, number % 9) for number in range(11)]])
    assert [(one.ledger_id, one.count) for one in found] == [(0, 1), (1, 2), (2, 1), (None, 7)]
