"""The ledgers of a topic: every order of a small world, roll-over and retention in virtual time."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING

import pytest
from played_series import LOST, TOPIC, ScheduleChoices, SeriesWorld, every_schedule

from storage.cluster.errors import ClientClosed, InvalidMetadata, MetadataUnavailable, WriterFenced
from storage.cluster.topics.errors import (
    LedgerMissing,
    MessageOutcomeUnknown,
    TopicClosed,
    TopicFenced,
    TopicTerminated,
)
from storage.cluster.topics.list_change import WriteList
from storage.cluster.topics.managed_ledger import (
    LedgerInfo,
    ManagedLedgerInfo,
    Position,
    encode_managed_ledger,
)
from storage.cluster.topics.policies import MissingLedgers, Retention, RollOver, ledgers_to_trim
from storage.cluster.topics.series import SeriesState
from storage.cluster.topics.series_effects import CloseLedger, CreateLedger, DeleteLedger
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from played_series import PlayedOwner


def opened(world: SeriesWorld, roll_over: RollOver | None = None) -> PlayedOwner:
    owner = world.owner(roll_over)
    owner.open()
    world.run()
    return owner


def quiet_world() -> SeriesWorld:
    return SeriesWorld(ScheduleChoices())


# ── every order of a small world ──────────────────────────────────────────────────────────────────────────


def play_one_owner(choices: ScheduleChoices, faults: int) -> None:
    """Produce over a roll-over, close, and open again; so many calls go wrong."""
    world = SeriesWorld(choices, faults)
    owner = world.owner(RollOver(entries=2))
    owner.open()
    world.run()
    for number in range(3):
        if owner.series.state is not SeriesState.ENDED:
            owner.add(b"message %d" % number)
    world.run()
    owner.close()
    world.run()
    world.faults = 0
    assert owner.ended, "a close ends"
    again = opened(world)
    assert again.series.state is SeriesState.OPEN
    again.add(b"again")
    world.run()
    assert b"again" in again.acknowledged
    world.check_end()


def test_no_message_is_lost_or_doubled_when_any_call_goes_wrong() -> None:
    assert every_schedule(lambda choices: play_one_owner(choices, 1), 200) >= 18


@pytest.mark.slow
def test_no_message_is_lost_or_doubled_when_any_three_calls_go_wrong() -> None:
    assert every_schedule(lambda choices: play_one_owner(choices, 3), 100_000) > 1_000


def play_two_owners(choices: ScheduleChoices, faults: int) -> None:
    """Let a second owner appear while the first one produces."""
    world = SeriesWorld(choices, faults)
    first = opened(world, RollOver(entries=2))
    if first.series.state is not SeriesState.OPEN:
        return
    second = world.owner()
    first.add(b"first 0")
    second.open()
    first.add(b"first 1")
    first.add(b"first 2")
    first.trim(Retention(0, 0))
    world.run(lambda: bool(second.opened or second.ended))
    for owner, payload in ((second, b"second 0"), (first, b"first 3"), (second, b"second 1")):
        if owner.series.state is not SeriesState.ENDED:
            owner.add(payload)
    world.run()
    world.check_end()
    states = [one.series.state for one in (first, second)]
    assert states != [SeriesState.OPEN, SeriesState.OPEN], "two owners believe that they are one"


def play_a_take_over(choices: ScheduleChoices) -> None:
    """Let a second owner open the topic while the first one goes to its next ledger."""
    world = SeriesWorld(choices)
    first = opened(world, RollOver(entries=1))
    second = world.owner()
    first.add(b"first")
    second.open()
    world.run()
    assert second.series.state is SeriesState.OPEN
    second.add(b"second")
    if first.series.state is SeriesState.OPEN:
        first.add(b"late")
    world.run()
    world.check_end()
    assert first.series.state is SeriesState.ENDED
    assert b"second" in second.acknowledged


def test_a_take_over_succeeds_in_any_order() -> None:
    assert every_schedule(play_a_take_over, 1000) > 100


def test_two_owners_never_lose_or_double_a_message() -> None:
    for seed in range(150):
        dice = random.Random(seed)
        play_two_owners(ScheduleChoices(dice.randrange(12) for _ in range(60)), faults=seed % 3)


@pytest.mark.slow
def test_two_owners_never_lose_or_double_a_message_in_many_orders() -> None:
    for seed in range(20_000):
        dice = random.Random(seed)
        play_two_owners(ScheduleChoices(dice.randrange(12) for _ in range(80)), faults=seed % 4)


def test_an_owner_that_is_killed_at_any_moment_loses_no_acknowledged_message() -> None:
    def play(choices: ScheduleChoices) -> None:
        world = SeriesWorld(choices)
        owner = world.owner(RollOver(entries=1))
        owner.open()
        kill_at = choices.choose(14)
        executed = 0

        def is_time() -> bool:
            nonlocal executed
            executed += 1
            if executed == 5:
                for number in range(3):
                    owner.add(b"message %d" % number)
            return executed > kill_at

        world.run(is_time)
        owner.kill()
        world.owners.remove(owner)
        next_one = opened(world)
        assert next_one.series.state is SeriesState.OPEN
        next_one.close()
        world.run()
        assert list(owner.acknowledged) == world.messages()[: len(owner.acknowledged)]
        assert next_one.ended == [None]

    assert every_schedule(play, 200) >= 14


# ── opening ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_topic_has_one_open_ledger_in_its_list() -> None:
    world = quiet_world()
    owner = opened(world)
    assert world.listed() == owner.opened == [11]
    assert world.content.ledgers[0] == LedgerInfo(11, timestamp_ms=0)


def test_an_opening_recovers_every_ledger_that_is_not_closed_and_takes_the_counts_from_there() -> None:
    world = quiet_world()
    world.put_ledger(1, [b"a" * 5, b"b" * 5, b"c" * 5], 3)
    world.put_ledger(2, [b"d" * 5, b"e" * 5], None)
    world.put_ledger(3, [], None)
    # The list has counts of ledger 1 that are wrong, and none of ledger 2.
    world.put_list(LedgerInfo(1, 7, 70, 5), LedgerInfo(2, timestamp_ms=0), LedgerInfo(3, timestamp_ms=0))

    opened(world)

    first, second, _ = world.content.ledgers
    assert first == LedgerInfo(1, 3, 15, 5)
    assert second == LedgerInfo(2, 2, 10, world.now_ms)
    assert world.ledgers[2].is_fenced
    assert 3 in world.deleted, "an empty ledger leaves the list and is deleted"


def test_the_list_without_an_empty_ledger_is_written_before_the_ledger_is_deleted() -> None:
    world = quiet_world()
    opened(world).kill()
    world.owners.clear()
    owner = world.owner()
    owner.open()
    world.run(lambda: any(isinstance(one, DeleteLedger) for one in owner.calls))
    assert 11 not in world.listed()


def test_a_terminated_topic_is_not_written() -> None:
    world = quiet_world()
    world.write(encode_managed_ledger(ManagedLedgerInfo((), Position(4, 9))), None)
    (error,) = opened(world).ended
    assert isinstance(error, TopicTerminated)
    assert str(error) == f"{TOPIC} was terminated after entry 9 of ledger 4: it takes no more messages"


def test_a_list_that_is_none_is_refused() -> None:
    world = quiet_world()
    world.write(b"\xff", None)
    owner = world.owner()
    owner.open()
    owner.execute_one()
    (error,) = owner.ended
    assert isinstance(error, InvalidMetadata)


@pytest.mark.parametrize("missing", MissingLedgers)
def test_a_missing_ledger_is_named_or_skipped(missing: MissingLedgers) -> None:
    world = quiet_world()
    world.put_ledger(2, [b"kept"], 1)
    world.put_list(LedgerInfo(1, 1, 1, 5), LedgerInfo(2, 1, 4, 5))
    owner = world.owner(missing=missing)
    owner.open()
    world.run()
    if missing is MissingLedgers.SKIP:
        assert world.messages() == [b"kept"]
        assert owner.opened
    else:
        (error,) = owner.ended
        assert isinstance(error, LedgerMissing)
        assert error.ledger_id == 1


def test_a_ledger_that_was_trimmed_while_the_topic_was_opened_is_not_missing() -> None:
    world = quiet_world()
    world.put_ledger(2, [b"kept"], 1)
    world.write(
        encode_managed_ledger(ManagedLedgerInfo((LedgerInfo(1, 1, 1, 5), LedgerInfo(2, 1, 4, 5)))), None
    )
    owner = world.owner()
    owner.open()
    owner.execute_one()  # reads the list
    world.write(encode_managed_ledger(ManagedLedgerInfo((LedgerInfo(2, 1, 4, 5),))), 0)
    world.run()
    assert owner.opened


def test_an_owner_that_is_between_two_ledgers_is_taken_over_too() -> None:
    world = quiet_world()
    first = opened(world, RollOver(entries=1))
    first.add(b"one")
    while not any(isinstance(one, CreateLedger) for one in first.calls):
        first.execute_one()
    second = world.owner()
    second.open()
    while not any(isinstance(one, WriteList) for one in second.calls):
        second.execute_one()
    while len(first.opened) < 2:
        first.execute_one()
    first.add(b"two")
    world.run()
    assert second.series.state is SeriesState.OPEN
    assert world.listed()[-1] == second.series.current
    first.add(b"three")
    world.run()
    assert isinstance(first.ended[0], TopicFenced)
    assert world.messages() == [b"one", b"two"] == list(first.acknowledged)


def test_the_first_error_of_the_metadata_ends_an_opening() -> None:
    world = SeriesWorld(ScheduleChoices([1]), faults=1)
    (error,) = opened(world).ended
    assert isinstance(error, MetadataUnavailable)


# ── adding, and from one ledger to the next ───────────────────────────────────────────────────────────────


def test_messages_that_are_added_while_a_ledger_is_closed_go_to_the_next_one_in_their_order() -> None:
    world = quiet_world()
    owner = opened(world, RollOver(entries=2))
    for number in range(5):
        owner.add(b"%d" % number)
    world.run()
    assert [one.ledger_id for one in world.content.ledgers] == [11, 12, 13]
    assert [place for _, place in sorted(owner.acknowledged.items())] == [
        (11, 0),
        (11, 1),
        (12, 0),
        (12, 1),
        (13, 0),
    ]


def test_the_next_ledger_is_created_only_after_the_one_before_is_closed() -> None:
    world = quiet_world()
    owner = opened(world, RollOver(entries=1))
    owner.add(b"one")
    world.run(lambda: len(world.ledgers) > 1)
    assert world.ledgers[11].end == 1


def test_an_owner_whose_ledger_is_fenced_ends_and_tells_what_is_not_known() -> None:
    world = quiet_world()
    first = opened(world)
    second = world.owner()
    second.open()
    world.run()
    first.add(b"late")
    first.add(b"too late")
    world.run()
    assert [type(one) for one in first.failed.values()] == [MessageOutcomeUnknown, MessageOutcomeUnknown]
    (error,) = first.ended
    assert isinstance(error, TopicFenced)
    with pytest.raises(TopicFenced):
        first.add(b"more")
    assert second.series.state is SeriesState.OPEN


def test_entries_of_a_ledger_whose_end_is_known_are_never_unknown() -> None:
    world = quiet_world()
    owner = opened(world)
    owner.add(b"stored")
    world.ledgers[11].entries.append(b"stored")  # its acknowledgement is lost with the writer
    owner.calls.clear()
    owner.perform(owner.series.append_failed(11, LOST))
    owner.calls.clear()
    owner.perform(owner.series.closed(11, MetadataUnavailable("lost"), world.now_ms))
    world.run()
    assert owner.acknowledged == {b"stored": (11, 0)}
    assert owner.failed == {}


def test_a_series_whose_client_is_closed_ends_at_once() -> None:
    world = quiet_world()
    owner = opened(world)
    owner.add(b"one")
    owner.calls.clear()
    owner.perform(owner.series.append_failed(11, LOST))
    owner.calls.clear()
    owner.perform(owner.series.closed(11, ClientClosed(), world.now_ms))
    (error,) = owner.ended
    assert isinstance(error, ClientClosed)
    assert isinstance(owner.failed[b"one"], MessageOutcomeUnknown)


def test_an_owner_whose_ledger_is_fenced_does_not_recover_it() -> None:
    world = quiet_world()
    owner = opened(world)
    owner.add(b"one")
    owner.calls.clear()
    owner.perform(owner.series.append_failed(11, LOST))
    owner.calls.clear()
    owner.perform(owner.series.closed(11, WriterFenced(11), world.now_ms))
    assert isinstance(owner.ended[0], TopicFenced)
    assert not owner.calls


def test_a_ledger_that_ends_while_the_list_is_written_waits_for_the_list() -> None:
    world = quiet_world()
    owner = opened(world, RollOver(entries=1))
    owner.add(b"one")
    world.run()
    owner.trim(Retention(0, 0))
    (write,) = owner.calls
    owner.calls.clear()
    owner.add(b"two")
    world.run()
    assert owner.series.state is SeriesState.CLOSING
    owner.calls.append(write)
    world.run()
    assert owner.trimmed == [(11,)]
    assert world.listed() == [12, 13]


@pytest.mark.parametrize("until", [CreateLedger, WriteList])
def test_a_series_that_is_closed_between_two_ledgers_leaves_none_behind(
    until: type[CreateLedger] | type[WriteList],
) -> None:
    world = quiet_world()
    owner = opened(world, RollOver(entries=1))
    owner.add(b"one")
    while not any(isinstance(one, until) for one in owner.calls):
        owner.execute_one()
    owner.close()
    world.run()
    assert owner.ended == [None]
    assert world.listed() == [11]
    assert set(world.ledgers) == {11}


def test_a_ledger_that_cannot_be_created_is_tried_again_later_and_then_given_up() -> None:
    world = quiet_world()
    owner = opened(world, RollOver(entries=1))
    owner.add(b"one")
    owner.add(b"waits")
    world.run(lambda: owner.series.state is SeriesState.CREATING)
    delays = []
    while not owner.ended:
        owner.calls.clear()
        owner.perform(owner.series.created(MetadataUnavailable("lost"), world.now_ms))
        if owner.series.due_ms is not None:
            delays.append(owner.series.due_ms - world.now_ms)
            world.now_ms = owner.series.due_ms
            owner.check_time()
    assert delays == [100, 200, 400, 800, 1600, 3200, 6400]
    assert isinstance(owner.failed[b"waits"], MetadataUnavailable), "it was certainly not sent"


def test_an_entry_that_no_ledger_takes_ends_the_series_after_some_ledgers() -> None:
    world = quiet_world()
    owner = opened(world)
    world.refuses_entries = True
    owner.add(b"poison")
    world.run()
    assert isinstance(owner.failed[b"poison"], MetadataUnavailable), "it is certainly in no ledger"
    assert len(owner.opened) == 8


def test_a_closed_series_has_written_all_ends_and_takes_no_more() -> None:
    world = quiet_world()
    owner = opened(world)
    owner.add(b"one")
    world.run()
    owner.close()
    world.run()
    assert owner.ended == [None]
    assert world.content.ledgers == (LedgerInfo(11, 1, 3, world.now_ms),)
    with pytest.raises(TopicClosed):
        owner.add(b"two")


# ── roll-over ─────────────────────────────────────────────────────────────────────────────────────────────

ROLL_OVER = RollOver(entries=3, size=30, age_s=10.0, age_min_s=2.0)


@pytest.mark.parametrize(
    ("entries", "size", "age_ms"),
    list(product((0, 1, 2, 3, 4), (0, 29, 30, 31), (0, 1999, 2000, 9999, 10_000))),
)
def test_a_ledger_is_full_by_entries_size_or_age_but_not_too_soon(
    entries: int, size: int, age_ms: int
) -> None:
    is_full = entries > 0 and (entries >= 3 or size >= 30 or age_ms >= 10_000) and age_ms >= 2000
    assert ROLL_OVER.is_full(entries, size, age_ms) is is_full
    after = ROLL_OVER.full_after_ms(entries, size)
    if after is None:
        assert entries == 0
    else:
        assert ROLL_OVER.is_full(entries, size, after)
        assert not ROLL_OVER.is_full(entries, size, after - 1)


@pytest.mark.parametrize(("added", "due_after"), [(0, None), (1, 10_000), (2, 10_000), (3, 2000)])
def test_a_quiet_ledger_is_closed_by_the_time_and_never_while_it_is_empty(
    added: int, due_after: int | None
) -> None:
    world = quiet_world()
    owner = opened(world, ROLL_OVER)
    world.now_ms += 100_000  # the age counts from the first entry
    for number in range(added):
        owner.add(b"%d" % number)
    world.run()
    due = owner.series.due_ms
    assert due == (None if due_after is None else world.now_ms + due_after)
    if due is not None:
        world.now_ms = due - 1
        owner.check_time()
        assert not owner.calls
        world.now_ms = due
        owner.check_time()
        assert list(owner.calls) == [CloseLedger(11)]
        world.run()
        assert world.listed() == [11, 12]
        assert owner.series.due_ms is None


def test_a_roll_over_on_request_leaves_an_empty_ledger_alone() -> None:
    world = quiet_world()
    owner = opened(world)
    owner.perform(owner.series.start_roll_over())
    assert not owner.calls
    owner.add(b"one")
    owner.perform(owner.series.start_roll_over())
    world.run()
    assert world.listed() == [11, 12]


@pytest.mark.parametrize(
    "wrong", [{"entries": 0}, {"size": 0}, {"age_s": 0}, {"age_min_s": -1}, {"age_s": 1, "age_min_s": 2}]
)
def test_a_roll_over_that_cannot_work_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidConfig):
        RollOver(**wrong)


# ── retention ─────────────────────────────────────────────────────────────────────────────────────────────

NOW_MS = 100_000
LEDGERS = (LedgerInfo(1, 2, 10, 60_000), LedgerInfo(2, 2, 10, 90_000), LedgerInfo(3, 1, 5, 0))


@pytest.mark.parametrize(
    ("age_s", "size", "gone"),
    [
        (-1, -1, []),
        (0, 0, [1, 2]),
        (-1, 0, [1, 2]),
        (0, -1, [1, 2]),
        (40, -1, []),
        (39, -1, [1]),
        (10, -1, [1]),
        (9, -1, [1, 2]),
        (-1, 5, [1, 2]),
        (-1, 6, [1]),
        (-1, 15, [1]),
        (-1, 16, []),
        (39, 16, [1]),
        (40, 15, [1]),
        (9, 16, [1, 2]),
    ],
)
def test_a_ledger_goes_by_its_age_or_by_what_would_remain(age_s: int, size: int, gone: list[int]) -> None:
    found = ledgers_to_trim(LEDGERS, 3, (), Retention(age_s, size), NOW_MS)
    assert [one.ledger_id for one in found] == gone


@pytest.mark.parametrize(
    ("cursors", "gone"),
    [
        ([(1, 0)], []),
        ([(1, 1)], [1]),
        ([(2, -1)], [1]),
        ([(2, 0)], [1]),
        ([(2, 1)], [1, 2]),
        ([(3, -1)], [1, 2]),
        ([(3, 0), (1, 0)], []),
        ([(3, 0), (1, 1)], [1]),
        ([(-1, -1)], []),
    ],
)
def test_a_ledger_stays_until_all_cursors_have_passed_it(
    cursors: list[tuple[int, int]], gone: list[int]
) -> None:
    positions = [Position(*one) for one in cursors]
    found = ledgers_to_trim(LEDGERS, 3, positions, Retention(0, 0), NOW_MS)
    assert [one.ledger_id for one in found] == gone


def test_a_ledger_that_stays_ends_the_trim() -> None:
    ledgers = (LedgerInfo(1, 1, 1, 95_000), LedgerInfo(2, 1, 1, 10_000), LedgerInfo(3, timestamp_ms=0))
    assert ledgers_to_trim(ledgers, 3, (), Retention(50, -1), NOW_MS) == []


def test_a_trim_writes_the_list_first_and_deletes_afterwards() -> None:
    world = quiet_world()
    owner = opened(world, RollOver(entries=1))
    owner.add(b"one")
    world.run()
    owner.trim(Retention(0, 0))
    assert not any(isinstance(one, DeleteLedger) for one in owner.calls)
    world.run(lambda: any(isinstance(one, DeleteLedger) for one in owner.calls))
    assert world.listed() == [12]
    world.run()
    assert owner.trimmed == [(11,)]
    assert world.deleted == {11}


def test_a_trim_waits_for_a_roll_over_and_a_roll_over_for_a_trim() -> None:
    world = quiet_world()
    owner = opened(world, RollOver(entries=1))
    owner.add(b"one")  # begins a roll-over
    owner.trim(Retention(0, 0))
    world.run()
    assert owner.trimmed == [(11,)]
    owner.add(b"two")
    world.run()
    owner.trim(Retention(0, 0))
    owner.add(b"three")
    owner.add(b"four")
    world.run()
    assert owner.trimmed == [(11,), (12,)]
    assert world.messages() == [b"three", b"four"]


def test_a_trim_of_an_owner_that_was_taken_over_deletes_nothing() -> None:
    world = quiet_world()
    first = opened(world, RollOver(entries=1))
    first.add(b"one")
    world.run()
    opened(world)
    first.trim(Retention(0, 0))
    world.run()
    assert first.trimmed == []
    assert isinstance(first.ended[0], TopicFenced)
    assert world.messages() == [b"one"]


@pytest.mark.parametrize(("age_s", "size"), [(-2, 0), (0, -2)])
def test_a_retention_that_cannot_work_is_refused(age_s: int, size: int) -> None:
    with pytest.raises(InvalidConfig):
        Retention(age_s, size)
