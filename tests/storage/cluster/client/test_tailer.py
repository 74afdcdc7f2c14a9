"""A ledger that is followed while it is written."""

from __future__ import annotations

from played_machines import PlayedTailer, open_metadata, stored

from storage.cluster.client.effects import FollowEnded, NoAnswer, ShowEntry
from storage.cluster.errors import CopiesUnreadable, LedgerCutShort, NoSuchLedgerExistsOnMetadataServer
from storage.cluster.metadata.znodes import Gone
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import LAST_ENTRY, CodeAnswer, FoundEntry, LongPoll

NOTHING = FoundEntry(None, LAST_ENTRY, -1)


def shown(played: PlayedTailer) -> list[int]:
    return [one.entry.entry_id for one in played.reports if isinstance(one, ShowEntry)]


def test_a_bookie_is_asked_to_answer_when_more_is_confirmed() -> None:
    played = PlayedTailer()
    (poll,) = played.sends
    assert isinstance(poll.request, LongPoll)
    assert (poll.request.previous_lac, poll.request.wants_entry) == (-1, True)

    played.poll_answer(FoundEntry(stored(0), 0, 0))

    assert shown(played) == [0]
    (poll,) = played.sends
    assert isinstance(poll.request, LongPoll)
    assert poll.request.previous_lac == 0


def test_without_news_the_next_bookie_is_asked() -> None:
    played = PlayedTailer()
    asked = []
    for _ in range(3):
        asked.append(played.sends[-1].bookie)
        played.poll_answer(NOTHING)

    assert set(asked) == {"b1", "b2", "b3"}


def test_a_round_without_news_is_followed_by_a_pause() -> None:
    """Bookies answer at once while a ledger is fenced and not closed."""
    played = PlayedTailer()
    for _ in range(2):
        for _ in range(3):
            assert (len(played.sends), played.waits) == (1, [])
            played.poll_answer(NOTHING)
        assert (played.sends, played.waits) == ([], [1.0])
        played.waited()
        played.read()


def test_entries_up_to_the_last_add_confirmed_are_shown_in_order_and_no_others() -> None:
    played = PlayedTailer()
    played.poll_answer(FoundEntry(stored(0), 0, 2))
    for entry_id in (1, 2):
        played.read_answer(entry_id, f"b{entry_id + 1}", FoundEntry(stored(entry_id), entry_id, 2))

    assert shown(played) == [0, 1, 2]
    assert isinstance(played.sends[-1].request, LongPoll)


def test_several_entries_are_read_at_the_same_time_and_shown_in_their_order() -> None:
    played = PlayedTailer()
    played.poll_answer(FoundEntry(stored(0), 0, 40))
    assert played.waiting == [(entry_id, f"b{entry_id % 3 + 1}") for entry_id in range(1, 17)]

    for entry_id in (3, 2):
        played.read_answer(entry_id, f"b{entry_id % 3 + 1}", stored(entry_id))
    assert shown(played) == [0]
    played.read_answer(1, "b2", stored(1))

    assert shown(played) == [0, 1, 2, 3]
    assert len(played.sends) == 16


def test_an_entry_after_the_end_is_not_shown_although_it_is_read_before_the_close() -> None:
    played = PlayedTailer()
    played.poll_answer(FoundEntry(stored(0), 0, 2))
    played.read_answer(2, "b3", stored(2))
    played.change(open_metadata().closed(1, 6))
    played.read_answer(1, "b2", stored(1))

    assert shown(played) == [0, 1]
    assert played.reports[-1] == FollowEnded()


def test_the_last_add_confirmed_never_goes_back() -> None:
    played = PlayedTailer()
    played.poll_answer(FoundEntry(stored(0), 0, 1))
    played.read_answer(1, played.sends[-1].bookie, FoundEntry(stored(1), 1, 0))

    assert played.machine.last_add_confirmed == 1


def test_a_closed_ledger_is_shown_up_to_its_end() -> None:
    played = PlayedTailer()
    played.poll_answer(NOTHING)
    played.change(open_metadata().closed(0, 3))
    assert played.sends[-1].token.entry_id == 0
    played.read_answer(0, played.sends[-1].bookie, stored(0))

    assert played.reports == [played.reports[0], FollowEnded()]
    assert shown(played) == [0]


def test_an_answer_to_a_poll_from_before_the_close_shows_nothing_after_the_end() -> None:
    played = PlayedTailer()
    played.change(open_metadata().closed(-1, 0))
    assert played.reports == [FollowEnded()]

    played.poll_answer(FoundEntry(stored(0), 0, 0))
    assert played.reports == [FollowEnded()]


def test_a_ledger_that_is_closed_before_an_entry_that_was_shown_is_cut_short() -> None:
    played = PlayedTailer()
    played.poll_answer(FoundEntry(stored(0), 0, 0))
    played.change(open_metadata().closed(-1, 0))

    ended = played.reports[-1]
    assert isinstance(ended, FollowEnded)
    assert isinstance(ended.error, LedgerCutShort)


def test_an_entry_that_cannot_be_read_is_tried_again_with_newer_metadata() -> None:
    played = PlayedTailer(open_metadata().closed(0, 3))
    for bookie in ("b1", "b2", "b3"):
        played.read_answer(0, bookie, NoAnswer("timed out"))
    assert played.waits == [1.0]
    played.waited()
    played.changed_by_another(open_metadata().closed(0, 3).with_bookies(0, ("b7", "b8", "b9")))
    played.read()

    played.read_answer(0, "b7", stored(0))
    assert shown(played) == [0]


def test_an_entry_that_stays_unreadable_ends_the_reader() -> None:
    played = PlayedTailer(open_metadata().closed(0, 3))
    for _ in range(9):
        for bookie in ("b1", "b2", "b3"):
            played.read_answer(0, bookie, CodeAnswer(Code.NO_ENTRY))
        played.waited()
        played.read()
    for bookie in ("b1", "b2", "b3"):
        played.read_answer(0, bookie, CodeAnswer(Code.NO_ENTRY))

    ended = played.reports[-1]
    assert isinstance(ended, FollowEnded)
    assert isinstance(ended.error, CopiesUnreadable)


def test_a_bookie_that_does_not_answer_a_poll_is_not_asked_at_once_again() -> None:
    played = PlayedTailer()
    played.poll_answer(NoAnswer("no connection"))
    assert (played.sends, played.waits) == ([], [1.0])

    played.waited()
    played.read()
    assert len(played.sends) == 1


def test_a_reader_that_is_paused_asks_for_nothing() -> None:
    played = PlayedTailer()
    played.machine.pause()
    played.poll_answer(FoundEntry(stored(0), 0, 1))
    assert (shown(played), played.sends) == ([0], [])

    played.resume()
    assert [one.token.entry_id for one in played.sends] == [1]


def test_a_reader_that_is_stopped_does_nothing_more() -> None:
    played = PlayedTailer()
    played.machine.stop()
    played.poll_answer(NoAnswer("no connection"))
    played.change(open_metadata().closed(-1, 0))
    assert (played.reports, played.sends, played.waits) == ([], [], [])


def test_a_ledger_that_was_deleted_ends_the_reader() -> None:
    played = PlayedTailer()
    played.poll_answer(NoAnswer("no connection"))
    played.waited()
    effects = played.machine.metadata_read(Gone())

    (ended,) = effects
    assert isinstance(ended, FollowEnded)
    assert isinstance(ended.error, NoSuchLedgerExistsOnMetadataServer)
