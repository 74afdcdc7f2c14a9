"""The take-over of a ledger. The numbers are those of the conformance tests of the replicated layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from played_machines import ENTRIES, PlayedRecoverer, open_metadata, stored

from storage.cluster.client.distribution import Quorums
from storage.cluster.client.effects import NoAnswer, Recovered, RecoveryFailed, SendAdds
from storage.cluster.client.recoverer import RecovererState
from storage.cluster.errors import (
    ClusterError,
    CopiesUnreadable,
    NotEnoughBookies,
    RecoveryIncomplete,
    UnauthorizedAccess,
)
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.cluster.metadata.znodes import Conflict
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import LAST_ENTRY, CodeAnswer, ReadEntry

if TYPE_CHECKING:
    from storage.cluster.client.effects import BookieAnswer

LAST = LAST_ENTRY
NO_ENTRY = CodeAnswer(Code.NO_ENTRY)
NO_LEDGER = CodeAnswer(Code.NO_LEDGER)
TIMED_OUT = NoAnswer("timed out")


def begun(lac: int = -1, last: int | None = None, quorums: Quorums | None = None) -> PlayedRecoverer:
    """Return a recovery that has set the state and fenced b1 and b2, where `last` is the last entry."""
    played = PlayedRecoverer(open_metadata(quorums) if quorums else None)
    played.written()
    answer: BookieAnswer | bytes = NO_ENTRY if last is None else stored(last, lac)
    played.read_answer(LAST, "b1", answer)
    played.read_answer(LAST, "b2", answer)
    return played


def error_of(played: PlayedRecoverer) -> ClusterError:
    failed = played.reports[-1]
    assert isinstance(failed, RecoveryFailed)
    return failed.error


def end_of(played: PlayedRecoverer) -> tuple[int | None, int]:
    """Return last entry and length of the close that is being written."""
    closing = played.writes[-1].metadata
    assert closing.is_closed
    return closing.last_entry, closing.length


def test_30_the_state_is_written_before_any_bookie_is_asked() -> None:
    played = PlayedRecoverer()
    assert [one.metadata.state for one in played.writes] == [ClusterLedgerState.IN_RECOVERY]
    assert played.sends == []

    played.written()
    assert played.waiting == [(LAST, "b1"), (LAST, "b2"), (LAST, "b3")]
    assert all(
        isinstance(one.request, ReadEntry)
        and one.request.fences
        and one.request.master_key == ENTRIES.master_key
        for one in played.sends
    )


def test_a_closed_ledger_is_recovered_already() -> None:
    played = PlayedRecoverer(open_metadata().closed(3, 12))

    assert isinstance(played.reports[0], Recovered)
    assert (played.sends, played.writes) == ([], [])


def test_2614_every_read_of_the_tail_fences() -> None:
    played = begun()

    assert played.waiting == [(LAST, "b3"), *((entry, f"b{n}") for entry in (0, 1) for n in (1, 2, 3))]
    assert all(isinstance(one.request, ReadEntry) and one.request.fences for one in played.sends)


def test_an_empty_ledger_is_closed_without_entries() -> None:
    played = begun()
    played.missing(0, "b1", "b3")

    assert end_of(played) == (-1, 0)
    played.written()
    assert isinstance(played.reports[-1], Recovered)


def test_35_a_bookie_that_hangs_does_not_hold_up_the_fence_nor_the_reads() -> None:
    played = begun(lac=0, last=1)
    played.read_answer(1, "b1", stored(1, 0))
    played.store(1, "b1", "b2")
    played.missing(2, "b2", "b1")

    assert end_of(played) == (1, 6)


def test_36_a_fence_needs_answers_that_cover_the_ensemble() -> None:
    played = PlayedRecoverer()
    played.written()
    played.read_answer(LAST, "b1", NO_LEDGER)
    assert played.machine.state is RecovererState.FENCING
    played.read_answer(LAST, "b2", TIMED_OUT)
    played.read_answer(LAST, "b3", CodeAnswer(Code.UNKNOWN_LEDGER_STATE))

    error = error_of(played)
    assert isinstance(error, RecoveryIncomplete)
    assert error.bookies == ("b2 (timed out)", "b3 (unknown ledger state)")
    assert len(played.writes) == 1  # the ledger stays in recovery


def test_a_bookie_with_a_damaged_last_entry_is_fenced_all_the_same() -> None:
    played = PlayedRecoverer()
    played.written()
    played.read_answer(LAST, "b1", stored(4, 3)[:-1] + b"x")
    played.read_answer(LAST, "b2", stored(2, 1))

    assert min(one.token.entry_id for one in played.sends if one.token.entry_id != LAST) == 2


@pytest.mark.parametrize("entry_id", [LAST, 0])
def test_34_another_password_ends_the_recovery(entry_id: int) -> None:
    played = PlayedRecoverer()
    played.written()
    if entry_id != LAST:
        played.missing(LAST, "b1", "b2")
    played.read_answer(entry_id, "b3", CodeAnswer(Code.UNAUTHORIZED))

    assert isinstance(error_of(played), UnauthorizedAccess)


def test_40_entries_before_the_last_segment_were_acknowledged() -> None:
    changed = open_metadata().with_ensemble_change(4, ("b1", "b2", "b4"))
    played = PlayedRecoverer(changed)
    played.written()
    played.missing(LAST, "b1", "b4")

    assert {one.token.entry_id for one in played.sends if one.token.entry_id != LAST} == {4, 5}


@pytest.mark.parametrize(
    "answer", [TIMED_OUT, CodeAnswer(Code.IO_ERROR), CodeAnswer(Code.UNKNOWN_LEDGER_STATE), stored(1)]
)
def test_an_answer_that_is_no_proof_does_not_make_an_entry_missing(answer: BookieAnswer | bytes) -> None:
    played = begun()
    played.missing(0, "b1")
    played.read_answer(0, "b2", answer)
    played.read_answer(0, "b3", answer)

    error = error_of(played)
    assert isinstance(error, RecoveryIncomplete)
    assert len(error.bookies) == 2
    assert len(played.writes) == 1


def test_one_good_copy_decides_whatever_the_others_say() -> None:
    played = begun(quorums=Quorums(3, 3, 1))
    played.read_answer(LAST, "b3", NO_ENTRY)
    played.missing(0, "b1", "b2")
    played.read_answer(0, "b3", stored(0))

    assert played.adding == [(0, "b1"), (0, "b2"), (0, "b3")]


def test_42_entries_after_a_gap_are_given_up() -> None:
    played = begun(lac=0, last=3)
    played.read_answer(2, "b1", stored(2, 0))
    played.missing(1, "b2", "b3")

    assert played.adding == []
    played.read_answer(0, "b1", stored(0))
    assert end_of(played) == (0, 3)


def test_n9_entries_that_are_added_again_bring_the_last_add_confirmed_of_the_fence() -> None:
    played = begun(lac=1, last=3)
    for entry_id in (2, 3):
        played.read_answer(entry_id, "b1", stored(entry_id, 1))
        played.store(entry_id, "b1", "b2")

    requests = [add for one in played.log if isinstance(one, SendAdds) for add, _ in one.copies]
    entries = [ENTRIES.decode_any(request.entry) for request in requests]
    assert {one.last_add_confirmed for one in entries if one is not None} == {1}
    assert {one.length for one in entries if one is not None} == {9, 12}
    assert all(request.options.is_recovery for request in requests)


def test_n11_the_length_is_read_from_the_last_entry_if_none_was_added_again() -> None:
    # The last entry of b1 is 2, of which no other bookie knows. Its length is not that of the ledger.
    played = PlayedRecoverer()
    played.written()
    played.read_answer(LAST, "b1", stored(2, 1))
    played.read_answer(LAST, "b2", stored(1, 0))
    played.missing(2, "b2", "b3")
    assert played.machine.state is RecovererState.MEASURING

    played.read_answer(2, "b1", stored(2, 1))  # an answer to an earlier read tells nothing of entry 1
    played.read_answer(1, "b2", TIMED_OUT)
    played.read_answer(1, "b3", stored(1, 0))

    assert end_of(played) == (1, 6)


def test_n1_41_the_length_of_the_segments_before_an_empty_one_is_read() -> None:
    played = PlayedRecoverer(open_metadata().with_ensemble_change(1, ("b4", "b2", "b3")))
    played.written()
    played.missing(LAST, "b4", "b2")
    played.missing(1, "b4", "b3")
    # Entry 0 is at the bookies of the first segment.
    read = next(one for one in played.sends if one.token.entry_id == 0)
    played.read_answer(0, read.bookie, stored(0))

    assert end_of(played) == (0, 3)


def test_a_length_that_cannot_be_read_ends_the_recovery() -> None:
    played = begun(lac=0, last=0)
    played.missing(1, "b1", "b3")
    for bookie in ("b1", "b2", "b3"):
        played.read_answer(0, bookie, TIMED_OUT)

    assert isinstance(error_of(played), CopiesUnreadable)


def test_38_a_bookie_that_fails_is_replaced_in_memory_and_named_by_the_close() -> None:
    played = begun(lac=0, last=2)
    for entry_id in (1, 2):
        played.read_answer(entry_id, "b1", stored(entry_id, 0))
    played.store(1, "b1", "b2")
    played.lose_answer(2, "b3")
    (new,) = {bookie for _, bookie in played.adding} - {"b1", "b2", "b3"}
    assert len(played.writes) == 1
    played.store(2, new, "b1")
    played.missing(3, "b1", "b2")

    assert played.segments == [(0, ("b1", "b2", "b3")), (2, ("b1", "b2", new))]
    assert end_of(played) == (2, 9)


def test_the_tail_is_read_from_the_ensemble_as_it_was() -> None:
    played = begun(lac=0, last=2)
    played.read_answer(1, "b1", stored(1, 0))
    played.lose_answer(1, "b3")
    played.store(1, "b1", "b2")

    assert {one.bookie for one in played.sends if isinstance(one.request, ReadEntry)} <= {"b1", "b2", "b3"}


def test_a_bookie_that_cannot_be_replaced_and_is_needed_ends_the_recovery() -> None:
    played = begun(lac=0, last=1)
    played.machine.candidates = type(played.machine.candidates)(frozenset({"b1", "b2", "b3"}))
    played.read_answer(1, "b1", stored(1, 0))
    played.lose_answer(1, "b3")
    played.lose_answer(1, "b2")

    assert isinstance(error_of(played), NotEnoughBookies)


def test_31_a_recovery_adopts_the_close_of_another() -> None:
    played = begun()
    played.missing(0, "b1", "b3")
    played.changed_by_another(open_metadata().in_recovery().closed(0, 3))
    played.conflict(Conflict())
    played.read()

    recovered = played.reports[-1]
    assert isinstance(recovered, Recovered)
    assert (recovered.metadata.value.last_entry, recovered.metadata.value.length) == (0, 3)
    assert len(played.writes) == 2


def test_an_ensemble_change_of_the_writer_that_came_first_is_fenced() -> None:
    played = PlayedRecoverer()
    played.changed_by_another(open_metadata().with_ensemble_change(1, ("b1", "b4", "b3")))
    played.conflict(Conflict())
    played.read()
    played.written()

    assert played.waiting == [(LAST, "b1"), (LAST, "b3"), (LAST, "b4")]


def test_the_ledger_is_closed_when_all_that_was_found_has_qa_copies() -> None:
    played = begun(lac=-1, last=0)
    played.missing(1, "b1", "b2")
    played.read_answer(0, "b1", stored(0))
    played.store(0, "b1")
    assert len(played.writes) == 1

    played.store(0, "b3")
    assert end_of(played) == (0, 3)
