"""The writer of an open ledger. The numbers are those of the conformance tests of the replicated layer."""

from __future__ import annotations

import pytest
from played_machines import ENTRIES, LEDGER, PlayedWriter, SentCopy, open_metadata

from storage.cluster.client.distribution import Quorums
from storage.cluster.client.effects import (
    AddsAcknowledged,
    AddsFailed,
    NoAnswer,
    SendAdds,
    UnderReplicated,
    WriteMetadata,
    WriterClosed,
    WriterLost,
)
from storage.cluster.client.writer import Replacement, WriterLimits, WriterState
from storage.cluster.errors import (
    AddOutcomeUnknown,
    AddQuorumTimeout,
    EnsembleChangesExhausted,
    LedgerClosed,
    MetadataConflict,
    MetadataUnavailable,
    NotEnoughBookies,
    OutcomeUnknown,
    UnauthorizedAccess,
    WriterFenced,
)
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.cluster.metadata.znodes import Conflict
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddEntry, CodeAnswer, WriteLac
from storage.errors import EntryTooLarge


def test_10_an_entry_is_acknowledged_although_one_bookie_never_answers() -> None:
    writer = PlayedWriter()
    writer.add(b"one", b"two")

    writer.store(0, "b1", "b3")
    writer.store(1, "b3", "b1")

    assert writer.acknowledged == [(0, 0), (1, 1)]
    assert writer.waiting == [(0, "b2"), (1, "b2")]
    assert writer.writes == []


def test_11_entries_are_acknowledged_in_the_order_of_their_ids() -> None:
    writer = PlayedWriter()
    writer.add(b"one", b"two", b"three")

    writer.store(2, "b1", "b2")
    writer.store(1, "b1", "b2")
    assert writer.acknowledged == []

    writer.store(0, "b1", "b2")
    assert writer.acknowledged == [(0, 2)]


def test_copies_that_are_answered_together_count_as_those_that_are_answered_alone() -> None:
    writer = PlayedWriter()
    writer.add(b"one", b"two", b"three")
    sent = {one.bookie: one.sending for one in writer.sends if isinstance(one, SentCopy)}

    assert writer.machine.added(sent["b1"], [0, 1, 2], CodeAnswer(Code.OK)) == []
    assert writer.machine.added(sent["b2"], [2, 0], CodeAnswer(Code.OK)) == [AddsAcknowledged(0, 0)]
    assert writer.machine.added(sent["b3"], [0, 1, 2], CodeAnswer(Code.OK)) == [AddsAcknowledged(1, 2)]


def test_copies_that_fail_together_need_one_change() -> None:
    writer = PlayedWriter(spares=1)
    writer.add(b"one", b"two")
    (lost,) = {one.sending for one in writer.sends if isinstance(one, SentCopy) and one.bookie == "b2"}

    (write,) = writer.machine.added(lost, [0, 1], NoAnswer("timed out"))
    assert isinstance(write, WriteMetadata)
    assert write.metadata.segments[0].bookies == ("b1", "b4", "b3")


def test_an_entry_is_sent_to_its_write_set_with_the_last_add_confirmed_and_the_length() -> None:
    writer = PlayedWriter(Quorums(4, 3, 2))
    writer.add(b"one", b"two")
    assert writer.waiting == [(0, "b1"), (0, "b2"), (0, "b3"), (1, "b2"), (1, "b3"), (1, "b4")]
    writer.store(0, "b1", "b2")
    writer.store(1, "b3", "b4")

    writer.add(b"three")

    (sent, *_) = (one.request for one in writer.sends if one.token.entry_id == 2)
    assert isinstance(sent, AddEntry)
    entry = ENTRIES.decode(2, sent.entry)
    assert entry is not None
    assert (entry.last_add_confirmed, entry.length, entry.payload) == (1, 11, b"three")
    assert sent.master_key == ENTRIES.master_key


def test_12_a_failed_bookie_is_replaced_once_from_the_first_unacknowledged_entry_on() -> None:
    writer = PlayedWriter(spares=1)
    writer.add(b"one", b"two", b"three")
    writer.store(0, "b1", "b3")

    writer.lose_answer(1, "b2")
    writer.lose_answer(2, "b2")

    assert len(writer.writes) == 1
    assert writer.segments == [(0, ("b1", "b2", "b3")), (1, ("b1", "b4", "b3"))]
    assert (1, "b4") not in writer.waiting  # not before the metadata name it
    writer.written()
    assert {(1, "b4"), (2, "b4")} < set(writer.waiting)
    writer.store(1, "b4", "b1")
    writer.store(2, "b4", "b3")
    assert writer.acknowledged == [(0, 0), (1, 1), (2, 2)]


def test_nothing_is_acknowledged_while_the_ensemble_is_being_changed() -> None:
    writer = PlayedWriter()
    writer.add(b"one")
    writer.lose_answer(0, "b2")

    writer.store(0, "b1", "b3")
    assert writer.acknowledged == []

    writer.written()
    assert writer.acknowledged == [(0, 0)]


def test_13_a_failure_during_a_change_is_part_of_the_next_change() -> None:
    writer = PlayedWriter()
    writer.add(b"one")
    writer.answer(0, "b1", Code.IO_ERROR)
    writer.answer(0, "b2", Code.TOO_MANY_REQUESTS)
    writer.written()

    # The second change has a delay, because no entry was acknowledged since the first.
    assert (len(writer.writes), writer.waits) == (1, [0.05])
    writer.use_bookies("b3", "b4", "b5")
    writer.waited()

    assert len(writer.writes) == 2
    assert [first for first, _ in writer.segments] == [0]  # the segment of the first change is replaced
    assert set(writer.segments[0][1]) == {"b3", "b4", "b5"}
    writer.written()
    writer.store(0, "b4", "b5")
    assert writer.acknowledged == [(0, 0)]


def test_14_without_enough_bookies_all_entries_under_way_fail_and_the_ledger_is_closed() -> None:
    writer = PlayedWriter(Quorums(3, 3, 3), spares=0)
    writer.add(b"one")
    writer.store(0, "b1", "b2", "b3")
    writer.add(b"two", b"three")

    writer.lose_answer(1, "b2")
    assert writer.reports == [AddsAcknowledged(0, 0)]
    writer.written()

    _, failed, closed = writer.reports
    assert isinstance(failed, AddsFailed)
    assert (failed.first_entry, failed.last_entry) == (1, 2)
    assert isinstance(failed.error, NotEnoughBookies)
    assert isinstance(closed, WriterClosed)
    assert (closed.metadata.value.last_entry, closed.metadata.value.length) == (0, 3)
    with pytest.raises(NotEnoughBookies):
        writer.add(b"four")


def test_n10_an_entry_that_needs_a_bookie_which_cannot_be_replaced_does_not_wait_for_ever() -> None:
    # Five bookies, three of the ensemble stop: two are replaced, and every entry needs the third.
    writer = PlayedWriter(Quorums(3, 3, 3), spares=2)
    writer.use_bookies("b4", "b5")
    writer.add(b"one")
    writer.lose_answer(0, "b1")
    writer.lose_answer(0, "b2")
    writer.lose_answer(0, "b3")
    writer.written()
    writer.waited()
    writer.written()

    failed, closed = writer.reports
    assert isinstance(failed, AddsFailed)
    assert isinstance(failed.error, NotEnoughBookies)
    assert isinstance(closed, WriterClosed)


def test_n10_an_entry_that_is_added_during_a_change_does_not_wait_for_bookies_that_stay_failed() -> None:
    writer = PlayedWriter(Quorums(4, 2, 1), spares=0)
    writer.use_bookies("b5")
    writer.add(b"abc", b"abc", b"abc")
    writer.answer(0, "b1", Code.IO_ERROR)
    writer.store(2, "b3")
    for entry_id, bookie in ((2, "b4"), (1, "b3"), (1, "b2")):
        writer.answer(entry_id, bookie, Code.IO_ERROR)
    writer.written()
    writer.use_bookies("b6")
    writer.waited()
    assert writer.segments == [(0, ("b5", "b6", "b3", "b4"))]

    # Entry 6 belongs to b3 and b4, which have failed and stay, because one other bookie is not enough.
    writer.add(b"abc", b"abc", b"abc", b"abc")
    writer.written()
    writer.use_bookies("b7")
    writer.waited()
    writer.written()
    assert (6, "b7") in writer.adding
    for entry_id, bookie in writer.adding:
        writer.answer(entry_id, bookie)
    assert writer.machine.last_confirmed == 6


def test_a_bookie_that_cannot_be_replaced_is_left_out_while_the_others_suffice() -> None:
    writer = PlayedWriter(spares=0)
    writer.add(b"one")
    writer.lose_answer(0, "b2")
    writer.store(0, "b1", "b3")
    assert (writer.acknowledged, writer.writes) == ([(0, 0)], [])

    writer.add(b"two")
    assert writer.waiting == [(1, "b1"), (1, "b3")]
    writer.store(1, "b1", "b3")
    assert writer.acknowledged == [(0, 0), (1, 1)]

    # It is replaced as soon as there is another bookie.
    writer.use_bookies("b1", "b3", "b9")
    writer.add(b"three")
    assert writer.segments == [(0, ("b1", "b2", "b3")), (2, ("b1", "b9", "b3"))]


@pytest.mark.parametrize(
    ("state", "kind"),
    [(ClusterLedgerState.IN_RECOVERY, WriterFenced), (ClusterLedgerState.CLOSED, LedgerClosed)],
)
def test_15_metadata_that_are_not_open_end_the_writer_for_good(
    state: ClusterLedgerState, kind: type[Exception]
) -> None:
    writer = PlayedWriter()
    writer.add(b"one")
    found = open_metadata().in_recovery()
    writer.changed_by_another(found if state is found.state else found.closed(-1, 0))
    writer.lose_answer(0, "b2")
    writer.conflict(Conflict())
    writer.read()

    failed, lost = writer.reports
    assert isinstance(failed, AddsFailed)
    assert isinstance(failed.error, AddOutcomeUnknown)
    assert isinstance(lost, WriterLost)
    assert isinstance(lost.error, kind)
    with pytest.raises(kind):
        writer.add(b"two")
    writer.store(0, "b1", "b3")
    assert writer.acknowledged == []


def test_16_nothing_is_acknowledged_before_all_copies_of_a_change_are_sent_again() -> None:
    # Entry 0 needs its copy at the new bookie, and entry 1 has lost a copy too: an acknowledgement in the
    # middle of the loop would count that copy.
    writer = PlayedWriter(Quorums(3, 2, 2), spares=1)
    writer.add(b"one", b"two", b"three")
    writer.store(0, "b1", "b2")
    writer.add(b"four")
    writer.store(1, "b2", "b3")
    writer.store(2, "b3")
    assert writer.acknowledged == [(0, 0), (1, 1)]
    writer.store(3, "b1", "b2")

    writer.lose_answer(2, "b1")
    writer.written()

    assert writer.acknowledged == [(0, 0), (1, 1)]
    (sent_again,) = writer.log[-1:]
    assert isinstance(sent_again, SendAdds)
    sent_to = [(add.entry_id, [one.bookie for one in sendings]) for add, sendings in sent_again.copies]
    assert sent_to == [(2, ["b4"]), (3, ["b4"])]
    writer.store(2, "b4")
    assert writer.acknowledged[-1] == (2, 2)
    writer.store(3, "b4")
    assert writer.acknowledged[-1] == (3, 3)


def test_17_copies_are_sent_again_after_a_change_whose_answer_was_lost() -> None:
    writer = PlayedWriter(spares=1)
    writer.add(b"one")
    writer.lose_answer(0, "b2")

    writer.written_without_answer()
    writer.read()

    assert len(writer.writes) == 1
    assert (0, "b4") in writer.waiting
    writer.store(0, "b4", "b1")
    assert writer.acknowledged == [(0, 0)]


def test_a_change_whose_write_is_lost_is_written_again_and_the_lost_write_can_do_no_harm() -> None:
    writer = PlayedWriter(spares=1)
    writer.add(b"one")
    writer.lose_answer(0, "b2")
    writer.write_is_lost()
    writer.read()

    first, second = writer.writes
    assert first == second
    # The lost write takes place now, so that the second one fails.
    writer.changed_by_another(first.metadata)
    writer.conflict(Conflict())
    writer.read()

    assert len(writer.writes) == 2
    assert (0, "b4") in writer.waiting
    writer.store(0, "b4", "b1")
    assert writer.acknowledged == [(0, 0)]


def test_a_change_that_is_not_needed_any_more_makes_sure_that_its_lost_write_does_not_take_place() -> None:
    # Otherwise the lost write would replace b2 in the segment after entry 0 was acknowledged with its copy.
    writer = PlayedWriter(spares=1)
    writer.add(b"one", b"two")
    writer.lose_answer(1, "b2")
    writer.use_bookies("b1", "b2", "b3")
    writer.write_is_lost()
    writer.read()

    lost, again = writer.writes
    assert lost.metadata != open_metadata() == again.metadata
    assert lost.version == again.version
    writer.store(0, "b1", "b2")
    assert writer.acknowledged == []

    writer.written()
    assert writer.acknowledged == [(0, 0)]


def test_an_answer_of_an_earlier_sending_does_not_count() -> None:
    # The copy of index 1 goes to b2, then to b4, then to b2 again.
    writer = PlayedWriter(spares=1)
    writer.add(b"one", b"two")
    writer.lose_answer(1, "b2")
    writer.written()
    writer.answer(0, "b4", Code.IO_ERROR)
    writer.use_bookies("b1", "b2", "b3")
    writer.waited()
    writer.written()
    assert [send.bookie for send in writer.sends if send.token.entry_id == 0].count("b2") == 2

    writer.answer(0, "b2")  # the first sending: b2 may have lost it, or never made it durable
    writer.answer(0, "b1")
    assert writer.acknowledged == []

    writer.answer(0, "b2")
    assert writer.acknowledged == [(0, 0)]


def test_19_a_bookie_is_replaced_only_when_too_few_copies_would_be_left() -> None:
    writer = PlayedWriter(limits=WriterLimits(replacement=Replacement.WHEN_NEEDED))
    writer.add(b"one")
    writer.answer(0, "b2", Code.IO_ERROR)
    assert (writer.machine.state, writer.writes) == (WriterState.OPEN, [])
    writer.store(0, "b1", "b3")
    writer.add(b"two")
    assert writer.acknowledged == [(0, 0)]
    assert writer.waiting == [(1, "b1"), (1, "b3")], "the bookie that has failed gets no more copies"

    writer.answer(1, "b3", Code.IO_ERROR)
    writer.written()
    first, bookies = writer.segments[1]
    assert (first, bookies[0]) == (1, "b1")
    assert not {"b2", "b3"} & set(bookies)
    writer.store(1, *bookies)
    writer.close()
    writer.written()
    reported = [one.bookies for one in writer.reports if isinstance(one, UnderReplicated)]
    assert reported == [frozenset({"b2"})]


def test_20_an_entry_above_the_limit_is_refused_before_it_has_an_id() -> None:
    writer = PlayedWriter(limits=WriterLimits(entry_size_max=100))

    with pytest.raises(EntryTooLarge):
        writer.add(b"small", b"x" * 65)
    assert writer.sends == []

    writer.add(b"x" * 64)
    writer.store(0, "b1", "b2")
    assert writer.acknowledged == [(0, 0)]


def test_a_failure_after_the_acknowledgement_is_replaced_before_the_next_entry() -> None:
    writer = PlayedWriter(spares=1)
    writer.add(b"one")
    writer.store(0, "b1", "b3")
    writer.lose_answer(0, "b2")
    assert writer.writes == []

    writer.add(b"two")
    assert writer.waiting == [(1, "b1"), (1, "b3")]
    assert writer.segments == [(0, ("b1", "b2", "b3")), (1, ("b1", "b4", "b3"))]
    writer.written()
    writer.store(1, "b4", "b1")
    assert writer.acknowledged == [(0, 0), (1, 1)]


def test_bookies_that_lack_copies_are_reported_when_the_ledger_is_closed() -> None:
    writer = PlayedWriter(spares=0)
    writer.add(b"one", b"two")
    writer.store(0, "b1", "b2", "b3")
    writer.store(1, "b1", "b2")
    writer.close()
    writer.written()
    assert not any(isinstance(one, UnderReplicated) for one in writer.reports)

    writer.lose_answer(1, "b3")

    assert writer.reports[-1] == UnderReplicated(frozenset({"b3"}))


def test_a_ledger_with_all_copies_is_not_reported() -> None:
    writer = PlayedWriter()
    writer.add(b"one")
    writer.store(0, "b1", "b2")
    writer.close()
    writer.written()
    writer.store(0, "b3")

    assert not any(isinstance(one, UnderReplicated) for one in writer.reports)


def test_a_fence_ends_the_writer_and_the_outcome_of_its_entries_is_unknown() -> None:
    writer = PlayedWriter()
    writer.add(b"one", b"two")
    writer.store(0, "b1")

    writer.answer(1, "b3", Code.FENCED)

    failed, lost = writer.reports
    assert isinstance(failed, AddsFailed)
    assert (failed.first_entry, failed.last_entry) == (0, 1)
    assert isinstance(failed.error, OutcomeUnknown)
    assert isinstance(lost, WriterLost)
    assert isinstance(lost.error, WriterFenced)
    writer.close()
    assert writer.writes == []


def test_a_fence_met_during_a_change_ends_the_writer_whatever_becomes_of_the_change() -> None:
    writer = PlayedWriter()
    writer.add(b"one")
    writer.lose_answer(0, "b2")
    writer.answer(0, "b1", Code.FENCED)
    before = len(writer.log)

    writer.written()

    assert writer.log[before:] == []
    assert writer.machine.state is WriterState.LOST


def test_a_refusal_of_a_bookie_that_has_failed_before_does_not_end_the_writer() -> None:
    """The metadata do not name the bookie any more, so that it refuses its first add as a stranger's."""
    writer = PlayedWriter(spares=1)
    writer.add(b"one", b"two")
    writer.lose_answer(0, "b2")

    writer.answer(1, "b2", Code.FENCED)
    writer.written()

    writer.store(0, "b1", "b4")
    writer.store(1, "b1", "b4")
    assert writer.acknowledged == [(0, 0), (1, 1)]
    assert writer.machine.state is WriterState.OPEN


def test_another_password_ends_the_writer() -> None:
    writer = PlayedWriter()
    writer.add(b"one")
    writer.answer(0, "b1", Code.UNAUTHORIZED)

    lost = writer.reports[-1]
    assert isinstance(lost, WriterLost)
    assert isinstance(lost.error, UnauthorizedAccess)


def test_24_a_close_gives_up_entries_under_way_and_its_length_is_that_of_the_others() -> None:
    writer = PlayedWriter()
    writer.add(b"one", b"three")
    writer.store(0, "b1", "b2")
    writer.store(1, "b1")

    writer.close()
    assert writer.writes[-1].metadata == open_metadata().closed(0, 3)
    writer.written()

    _, failed, closed = writer.reports
    assert isinstance(failed, AddsFailed)
    assert isinstance(failed.error, LedgerClosed)  # certainly not in the ledger
    assert isinstance(closed, WriterClosed)
    writer.store(1, "b2")
    assert writer.acknowledged == [(0, 0)]


def test_23_a_ledger_that_another_client_has_closed_at_the_same_end_is_closed() -> None:
    writer = PlayedWriter()
    writer.add(b"one")
    writer.store(0, "b1", "b2")
    writer.changed_by_another(open_metadata().in_recovery().closed(0, 3))
    writer.close()
    writer.conflict(Conflict())
    writer.read()

    assert isinstance(writer.reports[-1], WriterClosed)


def test_39_a_ledger_that_another_client_has_closed_at_another_end_is_not_closed_again() -> None:
    writer = PlayedWriter()
    writer.add(b"one", b"two")
    writer.store(0, "b1", "b2")
    writer.changed_by_another(open_metadata().in_recovery().closed(1, 6))
    writer.close()
    writer.conflict(Conflict())
    writer.read()

    failed, lost = writer.reports[-2:]
    assert isinstance(failed, AddsFailed)
    assert isinstance(failed.error, AddOutcomeUnknown)
    assert isinstance(lost, WriterLost)
    assert isinstance(lost.error, MetadataConflict)
    assert len(writer.writes) == 1


def test_a_close_whose_answer_was_lost_is_resolved_by_the_content() -> None:
    writer = PlayedWriter()
    writer.close()
    writer.written_without_answer()
    writer.read()

    assert isinstance(writer.reports[-1], WriterClosed)
    assert len(writer.writes) == 1


def test_a_close_without_an_answer_and_without_a_read_has_an_unknown_outcome() -> None:
    writer = PlayedWriter()
    writer.close()
    writer.write_is_lost()
    writer.read_fails()

    lost = writer.reports[-1]
    assert isinstance(lost, WriterLost)
    assert isinstance(lost.error, OutcomeUnknown)


def test_a_change_without_metadata_ends_the_writer() -> None:
    writer = PlayedWriter()
    writer.add(b"one")
    writer.lose_answer(0, "b1")
    writer.conflict(Conflict())
    writer.read_fails()

    lost = writer.reports[-1]
    assert isinstance(lost, WriterLost)
    assert isinstance(lost.error, MetadataUnavailable)


def test_a_close_during_a_change_waits_for_its_write() -> None:
    writer = PlayedWriter(spares=1)
    writer.add(b"one")
    writer.lose_answer(0, "b2")
    writer.close()
    assert len(writer.writes) == 1

    writer.written()
    assert writer.writes[-1].metadata.is_closed
    assert writer.writes[-1].version == 1
    writer.written()
    assert isinstance(writer.reports[-1], WriterClosed)


def test_a_close_during_the_delay_of_a_change_does_not_wait() -> None:
    writer = PlayedWriter()
    writer.add(b"one")
    writer.lose_answer(0, "b1")
    writer.lose_answer(0, "b2")
    writer.written()
    assert writer.waits

    writer.close()
    assert writer.writes[-1].metadata.is_closed
    writer.waited()
    assert len(writer.writes) == 2


def test_ensemble_changes_without_an_acknowledgement_have_growing_delays_and_an_end() -> None:
    writer = PlayedWriter(limits=WriterLimits(ensemble_changes_max=6))
    writer.add(b"one")
    delays = []
    while writer.machine.state is not WriterState.CLOSING:
        send = writer.sends[0]
        writer.lose_answer(0, send.bookie)
        if writer.waits:
            delays += writer.waits
            writer.waited()
        if writer.machine.state is WriterState.CHANGING:
            writer.written()
    writer.written()

    assert delays == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]
    failed = writer.reports[0]
    assert isinstance(failed, AddsFailed)
    assert isinstance(failed.error, EnsembleChangesExhausted)


def test_the_limits_bound_what_is_in_flight() -> None:
    writer = PlayedWriter(limits=WriterLimits(entries_in_flight_max=2, bytes_in_flight_max=200))
    writer.add(b"one")
    assert writer.machine.has_room()
    assert not writer.machine.has_room(more_entries=1)
    assert not writer.machine.has_room(more_bytes=200)
    writer.add(b"two")
    assert not writer.machine.has_room()
    writer.store(0, "b1", "b2", "b3")
    assert writer.machine.has_room()
    writer.add(b"x" * 200)
    writer.store(1, "b1", "b2", "b3")
    assert not writer.machine.has_room()
    writer.store(2, "b1", "b2", "b3")
    assert writer.machine.bytes_in_flight == 0


def test_errors_name_the_ledger() -> None:
    writer = PlayedWriter()
    writer.add(b"one")
    writer.answer(0, "b1", Code.FENCED)

    failed = writer.reports[0]
    assert isinstance(failed, AddsFailed)
    assert str(LEDGER) in str(failed.error)


# ── what time brings ─────────────────────────────────────────────────────────────────────────────────────


def test_18_an_entry_without_enough_copies_in_its_time_ends_the_writer_and_the_ledger_is_closed() -> None:
    writer = PlayedWriter(limits=WriterLimits(add_quorum_timeout_s=10))
    writer.add(b"one", b"two")
    writer.at(100.0)
    writer.store(0, "b1", "b2")
    writer.add(b"three")
    writer.store(1, "b1")
    writer.at(109.9)
    assert writer.machine.state is WriterState.OPEN

    writer.at(110.0)
    with pytest.raises(AddQuorumTimeout):
        writer.add(b"four")
    writer.written()

    failed = next(one for one in writer.reports if isinstance(one, AddsFailed))
    assert (failed.first_entry, failed.last_entry) == (1, 2)
    assert isinstance(failed.error, AddQuorumTimeout)
    assert writer.node.value.last_entry == 0


def test_an_entry_has_its_whole_time_although_others_were_late() -> None:
    writer = PlayedWriter(limits=WriterLimits(add_quorum_timeout_s=10))
    for number in range(5):
        writer.add(b"one")
        writer.at(8.0 * number)
        writer.store(number, "b1", "b2")
        writer.at(8.0 * number + 7)
    assert writer.machine.state is WriterState.OPEN
    assert writer.acknowledged[-1] == (4, 4)


def test_bookies_are_told_explicitly_what_is_confirmed_and_only_when_it_has_moved() -> None:
    writer = PlayedWriter()
    writer.tell_confirmed()
    assert writer.sends == []
    writer.add(b"one", b"two")
    writer.store(0, "b1", "b2", "b3")
    writer.tell_confirmed()
    writer.tell_confirmed()

    told = [(one.bookie, one.request) for one in writer.sends if isinstance(one.request, WriteLac)]
    assert [bookie for bookie, _ in told] == ["b1", "b2", "b3"]
    assert {ENTRIES.decode_lac(request.packet) for _, request in told} == {0}


def test_a_bookie_that_does_not_take_what_is_confirmed_is_no_failed_bookie() -> None:
    writer = PlayedWriter()
    writer.add(b"one")
    writer.store(0, "b1", "b2", "b3")
    writer.tell_confirmed()
    writer.add(b"two")
    for send in [one for one in writer.sends if isinstance(one.request, WriteLac)]:
        writer.answer_send(send, CodeAnswer(Code.FENCED))

    assert writer.machine.state is WriterState.OPEN
    assert writer.writes == []
