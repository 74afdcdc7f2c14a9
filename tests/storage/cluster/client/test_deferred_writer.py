"""The writer of a ledger with deferred syncs: only a force confirms, and every bookie has to answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from played_machines import PlayedDeferredWriter
from running_cluster import RunningCluster, run_with_cluster

from storage.cluster.client.deferred_writer import SyncMode
from storage.cluster.client.distribution import Quorums
from storage.cluster.client.effects import (
    AddsFailed,
    EntriesForced,
    ForceFailed,
    NoAnswer,
    WriterClosed,
    WriterLost,
)
from storage.cluster.client.writer import WriterState
from storage.cluster.errors import AddOutcomeUnknown, EntriesNotForced, ForceIncomplete
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddEntry, CodeAnswer, ForceLedger
from storage.entry.format import HEAD

if TYPE_CHECKING:
    from pathlib import Path

    from storage.cluster.client.effects import BookieAnswer

THREE = ("b1", "b2", "b3")


def with_entries(count: int) -> PlayedDeferredWriter:
    """Return a writer of which so many entries are acknowledged by all bookies, and none is forced."""
    writer = PlayedDeferredWriter()
    writer.add(*[b"abc"] * count)
    for entry_id in range(count):
        writer.store(entry_id, *THREE)
    return writer


def test_21_the_last_add_confirmed_moves_only_by_a_force() -> None:
    writer = with_entries(2)
    assert (writer.deferred.last_acknowledged, writer.machine.last_confirmed) == (1, -1)
    assert writer.acknowledged == [(0, 0), (1, 1)]

    writer.force()
    writer.add(b"abc")
    copies = [one.request for one in writer.sends if isinstance(one.request, AddEntry)]
    assert all(one.options.is_deferred and HEAD.unpack_from(one.entry)[2] == -1 for one in copies)
    writer.store(2, *THREE)
    writer.answer_force(*THREE)

    # Up to what was acknowledged when the force began, and not more.
    assert writer.reports[-1] == EntriesForced(1)
    assert (writer.machine.last_confirmed, writer.machine.length_confirmed) == (1, 6)


def test_21_a_force_needs_an_answer_of_every_bookie() -> None:
    writer = with_entries(1)
    writer.force()
    writer.answer_force("b1", "b2")
    assert writer.machine.last_confirmed == -1
    writer.answer_force("b3")
    assert writer.machine.last_confirmed == 0


@pytest.mark.parametrize("answer", [NoAnswer("timed out"), CodeAnswer(Code.IO_ERROR)])
def test_21_a_force_that_fails_at_one_bookie_confirms_nothing_and_may_be_repeated(
    answer: BookieAnswer,
) -> None:
    writer = with_entries(1)
    writer.force()
    writer.answer_force("b1", "b3")
    writer.answer_force("b2", answer=answer)
    failed = writer.reports[-1]
    assert isinstance(failed, ForceFailed)
    assert isinstance(failed.error, ForceIncomplete)
    assert set(failed.error.reasons) == {"b2"}
    assert writer.machine.last_confirmed == -1

    writer.force()
    writer.answer_force(*THREE)
    assert writer.machine.last_confirmed == 0


def test_21_the_ensemble_does_not_change_while_an_acknowledged_entry_is_not_forced() -> None:
    writer = with_entries(1)
    writer.add(b"abc")
    writer.answer(1, "b2", Code.IO_ERROR)

    assert writer.writes == []
    assert writer.machine.state is WriterState.LOST
    failed, lost = writer.reports[-2:]
    assert isinstance(failed, AddsFailed)
    assert isinstance(failed.error, AddOutcomeUnknown)
    assert isinstance(lost, WriterLost)
    assert isinstance(lost.error, EntriesNotForced)
    assert (lost.error.bookie, lost.error.last_forced) == ("b2", -1)


def test_the_ensemble_changes_after_a_force_from_the_first_entry_that_is_not_forced() -> None:
    writer = with_entries(2)
    writer.force()
    writer.answer_force(*THREE)
    writer.add(b"abc")
    writer.answer(2, "b2", Code.IO_ERROR)
    writer.written()

    assert writer.segments[1][0] == 2
    new = writer.segments[1][1][1]
    writer.store(2, "b1", new)
    assert writer.acknowledged[-1] == (2, 2)


def test_a_bookie_that_may_have_been_restarted_ends_the_writer_if_entries_are_not_forced() -> None:
    """It would answer a force with success although it has lost the entry."""
    writer = with_entries(1)
    writer.force()
    writer.answer_force("b1", "b2")
    writer.lose_connection("b3")
    writer.answer_force("b3")

    assert writer.machine.last_confirmed == -1
    assert isinstance(writer.reports[-1], WriterLost)
    ended = len(writer.reports)
    writer.lose_connection("b1")
    assert len(writer.reports) == ended


def test_copies_under_way_at_a_bookie_that_may_have_been_restarted_do_not_count() -> None:
    writer = PlayedDeferredWriter()
    writer.add(b"abc")
    writer.store(0, "b1")
    writer.lose_connection("b1")
    writer.written()
    writer.store(0, "b2")
    assert writer.acknowledged == []
    writer.store(0, "b3")
    assert writer.acknowledged == [(0, 0)]


def test_a_copy_that_a_change_has_counted_on_and_that_is_lost_meanwhile_ends_the_writer() -> None:
    """Otherwise the first entry would wait for ever for a second copy."""
    writer = PlayedDeferredWriter()
    writer.add(b"abc", b"abc")
    writer.answer(0, "b1", Code.IO_ERROR)
    writer.store(0, "b3")
    writer.store(1, "b2")
    writer.answer(0, "b2", Code.IO_ERROR)
    writer.answer(1, "b3", Code.IO_ERROR)
    writer.written()
    spare = writer.segments[0][1][0]
    writer.answer(0, spare, Code.IO_ERROR)
    writer.use_bookies("b6")
    writer.waited()
    assert writer.segments == [(0, ("b6", "b2", "b3"))]

    writer.lose_connection("b3")
    writer.written()
    writer.store(0, "b6")
    writer.store(1, "b6")
    writer.waited()
    writer.written()
    failed, closed = writer.reports
    assert isinstance(failed, AddsFailed)
    assert (failed.first_entry, failed.last_entry) == (0, 1)
    assert isinstance(closed, WriterClosed)


def test_a_lost_connection_changes_nothing_when_everything_is_forced() -> None:
    writer = with_entries(1)
    writer.force()
    writer.answer_force(*THREE)
    writer.lose_connection("b1")

    assert writer.machine.state is WriterState.OPEN
    assert writer.writes == []


def test_close_forces_and_then_closes_after_the_last_acknowledged_entry() -> None:
    writer = with_entries(2)
    writer.close()
    assert writer.writes == []
    writer.answer_force(*THREE)
    writer.written()

    assert isinstance(writer.reports[-1], WriterClosed)
    assert (writer.node.value.last_entry, writer.node.value.length) == (1, 6)


def test_a_close_whose_force_fails_leaves_the_ledger_open_for_a_recovery() -> None:
    writer = with_entries(2)
    writer.close()
    writer.answer_force("b1", "b2")
    writer.answer_force("b3", answer=NoAnswer("timed out"))

    assert writer.writes == []
    lost = writer.reports[-1]
    assert isinstance(lost, WriterLost)
    assert isinstance(lost.error, ForceIncomplete)


def test_a_force_that_is_wanted_during_another_begins_after_it() -> None:
    writer = with_entries(1)
    writer.force()
    writer.add(b"abc")
    writer.store(1, *THREE)
    writer.force()
    assert sum(isinstance(one.request, ForceLedger) for one in writer.sends) == 3
    writer.answer_force(*THREE)
    writer.answer_force(*THREE)
    assert [one.last_entry for one in writer.reports if isinstance(one, EntriesForced)] == [0, 1]


def test_entries_of_running_bookies_are_forced_and_read(tmp_path: Path) -> None:
    async def steps(running: RunningCluster) -> None:
        async with running.client() as cluster:
            async with await cluster.create(Quorums(3, 3, 2), sync=SyncMode.DEFERRED) as writer:
                await writer.append_many([b"one", b"two"])
                assert writer.last_add_confirmed == -1
                assert await writer.force() == 1
                assert await writer.force() == 1
                await writer.append(b"three")
            reader = await cluster.view(writer.id)
            assert [payload async for payload in reader.payloads()] == [b"one", b"two", b"three"]

            broken = await cluster.create(Quorums(3, 3, 2), sync=SyncMode.DEFERRED)
            await broken.append(b"one")
            await running.stop("b2")
            with pytest.raises((EntriesNotForced, ForceIncomplete)):
                await broken.force()
            with pytest.raises(EntriesNotForced):
                await broken.append(b"two")
            with pytest.raises(EntriesNotForced):
                await broken.close()
            reader = await cluster.take_over(broken.id)
            assert [payload async for payload in reader.payloads()] == [b"one"]

    run_with_cluster(tmp_path, 3, steps)
