"""Which logs a collection takes, and why every other log is still there: the table of the policy."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

import pytest

from storage.gc.policy import (
    LogAction,
    PolicyFacts,
    Problem,
    ProblemKind,
    ReasonKind,
    Scope,
    Situation,
    Standing,
    decide,
    percent,
)

NOW = datetime(2026, 11, 19, 13, 5, tzinfo=UTC)
AT_1420 = datetime(2026, 11, 19, 14, 20, tzinfo=UTC)
TOMORROW = datetime(2026, 11, 20, 1, 0, tzinfo=UTC)
SITUATION = Situation(NOW, Scope.MAJOR, 0.2, 0.7, next_minor=AT_1420, next_major=TOMORROW)

DEAD = PolicyFacts(3, Standing.COMMITTED, 1100, recorded=1000, live=0)
EMPTY = PolicyFacts(3, Standing.COMMITTED, 1024, recorded=0, live=0)
NEARLY_DEAD = replace(DEAD, live=199)
HALF = replace(DEAD, live=500)
FULL = replace(DEAD, live=700)
UNKNOWN = replace(DEAD, live=None)
DAMAGED = replace(DEAD, problem=Problem(ProblemKind.DAMAGED, "ELG-003", 4711))
UNACCOUNTED = replace(HALF, problem=Problem(ProblemKind.UNACCOUNTED, "IDX-003", 1024))
HELD = replace(DEAD, standing=Standing.REMOVED, held_since=datetime(2026, 11, 19, 12, 59, tzinfo=UTC))
HELD_FOR_DAYS = replace(HELD, held_since=datetime(2026, 11, 1, 12, 59, tzinfo=UTC))

KEEP, COMPACT, REMOVE = LogAction.KEEP, LogAction.COMPACT, LogAction.REMOVE

TABLE: list[tuple[PolicyFacts, Scope, LogAction, str]] = [
    # The standing of a log decides first, then its problem, then its live share.
    *(
        (replace(DEAD, standing=Standing.ACTIVE), scope, KEEP, "active: checkpoints append to it")
        for scope in Scope
    ),
    *(
        (replace(DAMAGED, standing=Standing.LAST), scope, KEEP, "last: its id would be given out again")
        for scope in Scope
    ),
    (HELD, Scope.MAJOR, KEEP, "held by an audit since 12:59"),
    (HELD_FOR_DAYS, Scope.MAJOR, KEEP, "held by an audit since 2026-11-01 12:59"),
    (replace(HELD, held_since=None), Scope.MAJOR, KEEP, "removed: the next opening unlinks it"),
    *((DAMAGED, scope, KEEP, "damaged, ELG-003 at 4711") for scope in Scope),
    *((UNACCOUNTED, scope, KEEP, "unaccounted record at 1024, IDX-003") for scope in Scope),
    *((UNKNOWN, scope, KEEP, "live bytes unknown: it was not scanned yet") for scope in Scope),
    (
        replace(DEAD, waits_for_checkpoint=True),
        Scope.MAJOR,
        KEEP,
        "waits for the checkpoint that takes deleted ledgers out of the index",
    ),
    *((FULL, scope, KEEP, "70 % live, threshold 70 %") for scope in Scope),
    # Removals need no time of day and no room.
    (DEAD, Scope.NOTHING, KEEP, "collection is paused"),
    *((DEAD, scope, REMOVE, "dead: the next collection removes it") for scope in list(Scope)[1:]),
    (EMPTY, Scope.REMOVALS, REMOVE, "dead: the next collection removes it"),
    # Compactions by threshold.
    (NEARLY_DEAD, Scope.NOTHING, KEEP, "collection is paused"),
    (NEARLY_DEAD, Scope.REMOVALS, KEEP, "waits until 14:20"),
    (NEARLY_DEAD, Scope.MINOR, COMPACT, "19 % live: the next collection compacts it"),
    (NEARLY_DEAD, Scope.MAJOR, COMPACT, "19 % live: the next collection compacts it"),
    (replace(DEAD, live=200), Scope.MINOR, KEEP, "waits until 2026-11-20 01:00"),
    (HALF, Scope.REMOVALS, KEEP, "waits until 2026-11-20 01:00"),
    (HALF, Scope.MINOR, KEEP, "waits until 2026-11-20 01:00"),
    (HALF, Scope.MAJOR, COMPACT, "50 % live: the next collection compacts it"),
    (replace(DEAD, live=1), Scope.MAJOR, COMPACT, "under 1 % live: the next collection compacts it"),
]


@pytest.mark.parametrize(("log", "scope", "action", "reason"), TABLE)
def test_the_table_of_decisions(log: PolicyFacts, scope: Scope, action: LogAction, reason: str) -> None:
    [verdict] = decide([log], replace(SITUATION, scope=scope))
    assert (verdict.action, verdict.reason) == (action, reason)


def test_every_kind_of_reason_is_given() -> None:
    logs = [log for log, _, _, _ in TABLE]
    situations = [replace(SITUATION, scope=scope, room=room) for scope, room in product(Scope, (None, 0))]
    kinds = {verdict.kind for situation in situations for verdict in decide(logs, situation)}
    assert kinds == set(ReasonKind)


def test_dead_logs_come_first_and_then_those_with_the_smallest_share() -> None:
    shares = {1: 650, 2: 0, 3: 100, 4: 900, 5: 300, 6: 0}
    logs = [replace(DEAD, log_id=log_id, live=live) for log_id, live in shares.items()]
    assert [(one.log.log_id, one.action) for one in decide(logs, SITUATION)] == [
        (2, REMOVE),
        (6, REMOVE),
        (3, COMPACT),
        (5, COMPACT),
        (1, COMPACT),
        (4, KEEP),
    ]
    assert decide(reversed(logs), SITUATION) == decide(logs, SITUATION)


def test_only_as_many_logs_are_compacted_as_there_is_room_for_their_live_entries() -> None:
    logs = [replace(DEAD, log_id=number, live=live) for number, live in enumerate((300, 100, 0, 200))]
    verdicts = decide(logs, replace(SITUATION, room=400))
    assert [(one.log.live, one.action) for one in verdicts] == [
        (0, REMOVE),
        (100, COMPACT),
        (200, COMPACT),
        (300, KEEP),
    ]
    assert verdicts[-1].reason == "no room: its live entries take 300 bytes, 100 are free"


def test_with_thresholds_of_0_only_dead_logs_are_taken() -> None:
    verdicts = decide([DEAD, replace(DEAD, live=1)], replace(SITUATION, minor=0, major=0))
    assert [one.action for one in verdicts] == [REMOVE, KEEP]
    assert verdicts[1].reason == "under 1 % live, threshold 0 %"


def test_an_unknown_next_time_is_not_invented() -> None:
    [verdict] = decide([HALF], replace(SITUATION, scope=Scope.MINOR, next_major=None))
    assert (verdict.kind, verdict.reason) == (ReasonKind.WAITS, "waits for the next compaction")


def test_what_comes_back_is_the_file_without_the_entries_that_are_moved() -> None:
    logs = [DEAD, HALF, FULL, UNKNOWN, DAMAGED]
    for scope in Scope:
        verdicts = decide(logs, replace(SITUATION, scope=scope))
        assert sorted(one.comes_back for one in verdicts) == [0, 0, 0, 600, 1100]
    assert [one.comes_back for one in decide([HELD], SITUATION)] == [1100]


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.001, "under 1 %"), (0.29, "29 %"), (0.69999, "69 %"), (0.7, "70 %"), (1, "100 %")],
)
def test_a_share_is_rounded_down(share: float, text: str) -> None:
    assert percent(share) == text
