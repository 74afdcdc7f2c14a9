"""Each oracle reports what is wrong, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from recovery.crashlab.judge.oracles import (
    DEFAULT,
    Atomic,
    Checked,
    Durable,
    FencedStays,
    Idempotent,
    MonotonicLAC,
    NoFabrication,
    NoResurrection,
    PrefixPerStream,
    certain_writes,
)
from recovery.crashlab.judge.outcome import ObservedState, UnreadableValue
from recovery.crashlab.model.profile import PROFILES
from recovery.crashlab.record.history import NEVER, History, Op
from recovery.crashlab.run.spec import make_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.crashlab.judge.oracles import Oracle

Asked = "tuple[Any, ...] | list[Any]"


def history(*asked: Any) -> History:
    """Make a history of operations in sequence; those in a list are concurrent; "?" means never
    acknowledged.
    """
    ops: list[Op] = []
    now = 0
    for one in asked:
        together = one if isinstance(one, list) else [one]
        for at, (word, *args) in enumerate(together):
            acked = NEVER if word.startswith("?") else now + len(together) + at
            ops.append(Op(word.lstrip("?"), tuple(args), now + at, acked))
        now += 2 * len(together)
    return History(tuple(ops))


def kinds(
    oracles: Oracle | Iterable[Oracle],
    told: History,
    entries: dict[Any, Any] | None = None,
    fenced: Iterable[Any] = (),
    confirmed: dict[Any, int] | None = None,
) -> list[str]:
    """Return the classes of all breaches."""
    keyed = {key if isinstance(key, tuple) else (key,): value for key, value in (entries or {}).items()}
    shown = ObservedState(keyed, frozenset(fenced), confirmed or {})
    every = [oracles] if hasattr(oracles, "breaches") else oracles
    return [breach.kind for oracle in every for breach in oracle.breaches(told, shown)]


def possible(told: History, *values: Any) -> list[Any]:
    """Return which of these values, None for no value, the key "k" may have."""
    return [value for value in values if not kinds(DEFAULT, told, {} if value is None else {"k": value})]


# ── the allowed values of a key ─────────────────────────────────────────────────────────────────────────────

K1, K2, K3 = ("add", "k", 1), ("add", "k", 2), ("add", "k", 3)
MAYBE_2 = ("?add", "k", 2)
GONE, MAYBE_GONE = ("delete", "k"), ("?delete", "k")


@pytest.mark.parametrize(
    ("asked", "may_be"),
    [
        ((), [None]),
        ((K1,), [1]),
        ((K1, K2), [2]),
        ((("?add", "k", 1),), [None, 1]),
        ((K1, MAYBE_2), [1, 2]),
        ((MAYBE_2, K1), [1, 2]),  # never acknowledged, so it may take effect at any time
        ((MAYBE_2, ("?add", "k", 3)), [None, 2, 3]),
        (([K1, K2],), [1, 2]),  # concurrent, so either may be the last
        (([K1, K2], K3), [3]),
        (([K1, MAYBE_2],), [1, 2]),
        ((K1, GONE), [None]),
        ((K1, MAYBE_GONE), [None, 1]),
        ((K1, GONE, K2), [2]),
        ((K1, GONE, MAYBE_2), [None, 2]),
        ((K1, [GONE, K2]), [None, 2]),  # each of the others may be the last
        ((K1, GONE, K2, GONE), [None]),
        ((K1, GONE, GONE), [None]),
        ((MAYBE_2, GONE), [None, 2]),
        ((K1, GONE, K1), [1]),
    ],
)
def test_a_key_shows_only_allowed_values(asked: tuple[Any, ...], may_be: list[Any]) -> None:
    assert possible(history(*asked), None, 1, 2, 3, 9) == may_be


def test_overlapping_operations_follow_one_another_only_if_their_times_prove_it() -> None:
    # 1 and 2 overlap, 2 and 3 overlap, but 3 was invoked after 1 had been acknowledged.
    told = History((Op("add", ("k", 1), 0, 2), Op("add", ("k", 2), 1, 4), Op("add", ("k", 3), 3, 5)))

    assert possible(told, None, 1, 2, 3) == [2, 3]


def test_only_keys_with_one_possible_value_are_certain() -> None:
    told = history(
        ("add", "one", 1), ("add", "two", 1), ("add", "two", 2), [("add", "race", 1), ("add", "race", 2)],
        ("?add", "maybe", 1), ("add", "gone", 1), ("delete", "gone"), ("add", "risk", 1), ("?delete", "risk"),
    )  # fmt: skip

    assert {key: writes[-1].value for key, writes in certain_writes(told)} == {("one",): 1, ("two",): 2}


# ── Durable, NoFabrication, NoResurrection ──────────────────────────────────────────────────────────────────


def test_a_missing_acknowledged_key_is_lost() -> None:
    assert kinds(Durable(), history(K1), {}) == ["LOST"]
    assert kinds(Durable(), history(K1), {"k": UnreadableValue("torn")}) == ["UNREADABLE"]
    assert kinds(Durable(), history(K1), {"k": 1}) == []


def test_an_older_or_another_value_is_not_lost_but_wrong() -> None:
    assert kinds(DEFAULT, history(K1, K2), {"k": 1}) == ["STALE"]
    assert kinds(DEFAULT, history(K1), {"k": 9}) == ["FABRICATED"]
    assert kinds(DEFAULT, history(K1), {"k": 1, "other": 1}) == ["FABRICATED"]
    assert kinds(NoFabrication(), history(K1), {"k": UnreadableValue(), "other": UnreadableValue()}) == []


def test_a_deleted_key_that_is_back_is_one_breach() -> None:
    assert kinds(DEFAULT, history(K1, GONE), {"k": 1}) == ["RESURRECTED"]
    assert kinds(DEFAULT, history(K1, GONE, GONE), {"k": 1}) == ["RESURRECTED"]
    assert kinds(DEFAULT, history(K1, [GONE, GONE]), {"k": 1}) == ["RESURRECTED"]
    assert kinds(NoResurrection(), history(K1, MAYBE_GONE), {"k": 1}) == []


def test_a_value_from_before_a_delete_is_stale_after_an_add() -> None:
    assert kinds(DEFAULT, history(K1, GONE, K2), {"k": 1}) == ["STALE"]


def test_a_delete_takes_every_key_that_begins_like_it() -> None:
    told = history(("add", 1, 1, "x"), ("add", 1, 2, "y"), ("add", 2, 1, "z"), ("delete", 1))

    assert kinds(DEFAULT, told, {(2, 1): "z"}) == []
    assert kinds(DEFAULT, told, {(2, 1): "z", (1, 2): "y"}) == ["RESURRECTED"]
    assert kinds(DEFAULT, told, {}) == ["LOST"]


def test_keys_of_several_parts_are_not_confused() -> None:
    told = history(("add", "a", "b", 1), ("add", "a", 2))

    assert kinds(DEFAULT, told, {("a", "b"): 1, ("a",): 2}) == []
    assert kinds(DEFAULT, told, {("a", "b"): 2, ("a",): 2}) == ["FABRICATED"]


# ── Atomic ──────────────────────────────────────────────────────────────────────────────────────────────────

PAIR = ("add_all", "s", ((("s", 1), "x"), (("s", 2), "y")))
BOTH = {("s", 1): "x", ("s", 2): "y"}


def test_keys_added_together_are_all_there_or_none() -> None:
    maybe = history(("?add_all", *PAIR[1:]))

    assert kinds(DEFAULT, maybe, {}) == kinds(DEFAULT, maybe, BOTH) == []
    assert kinds(DEFAULT, maybe, {("s", 2): "y"}) == ["PARTIAL"]
    assert sorted(kinds(DEFAULT, history(PAIR), {("s", 2): "y"})) == ["LOST", "PARTIAL"]
    assert kinds(DEFAULT, history(PAIR), {}) == ["LOST", "LOST"]


def test_a_part_that_something_else_has_touched_is_no_part() -> None:
    told = history(("?add_all", *PAIR[1:]), ("add", "s", 1, "z"))

    assert kinds(Atomic(), told, {("s", 1): "z"}) == []
    assert kinds(Atomic(), history(PAIR, ("?delete", "s", 1)), {("s", 2): "y"}) == []


# ── PrefixPerStream ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_has_no_hole() -> None:
    told = history(*[("?add", "s", number, "x") for number in range(3)], ("?add", "t", 0, "x"))

    assert kinds(PrefixPerStream(), told, {("s", 0): "x", ("s", 1): "x", ("t", 0): "x"}) == []
    assert kinds(PrefixPerStream(), told, {("t", 0): "x"}) == []
    assert kinds(PrefixPerStream(), told, {("s", 0): "x", ("s", 2): "x"}) == ["HOLE"]
    assert kinds(PrefixPerStream(), told, {("s", 1): "x", ("s", 2): "x"}) == ["HOLE", "HOLE"]


def test_a_hole_that_a_delete_may_have_made_is_no_breach() -> None:
    told = history(("add", "s", 0, "x"), ("?delete", "s", 0), ("add", "s", 1, "x"))

    assert kinds(PrefixPerStream(), told, {("s", 1): "x"}) == []


# ── FencedStays, MonotonicLAC ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("asked", "fenced", "told"),
    [
        ([("fence", 1)], [1], []),
        ([("fence", 1)], [], ["UNFENCED"]),
        ([("?fence", 1)], [], []),
        ([("?fence", 1)], [1], []),
        ([], [1], ["FENCED"]),
        ([("fence", 1), ("delete", 1)], [], []),
        ([("fence", 1), ("?delete", 1)], [], []),
        ([("delete", 1), ("fence", 1)], [], ["UNFENCED"]),
        ([("fence", 1), ("delete", 1), ("fence", 1)], [], ["UNFENCED"]),
        ([("fence", 1), ("delete", 1, 5)], [], ["UNFENCED"]),  # of a key, not of the stream
        ([("fence", 1), ("fence", 2)], [1], ["UNFENCED"]),
    ],
)
def test_a_fence_stays_unless_its_stream_is_deleted(
    asked: list[Any], fenced: list[int], told: list[str]
) -> None:
    assert kinds(FencedStays(), history(*asked), fenced=fenced) == told


@pytest.mark.parametrize(
    ("asked", "seen", "told"),
    [
        ([("confirm", 1, 5)], 5, []),
        ([("confirm", 1, 5)], 4, ["WENT-BACK"]),
        ([("confirm", 1, 5)], None, ["WENT-BACK"]),
        ([("confirm", 1, 5)], 6, ["FABRICATED"]),
        ([("confirm", 1, 5), ("?confirm", 1, 7)], 5, []),
        ([("confirm", 1, 5), ("?confirm", 1, 7)], 7, []),
        ([("confirm", 1, 5), ("confirm", 1, 3)], 5, []),
        ([("confirm", 1, 5), ("confirm", 1, 3)], 3, ["WENT-BACK"]),
        ([("?confirm", 1, 5)], None, []),
        ([("confirm", 1, 5), ("delete", 1)], None, []),
        ([], 3, []),  # no operation names that stream
    ],
)
def test_a_confirmation_goes_neither_back_nor_further_than_requested(
    asked: list[Any], seen: int | None, told: list[str]
) -> None:
    assert kinds(MonotonicLAC(), history(*asked), confirmed={} if seen is None else {1: seen}) == told


# ── checks of the user ──────────────────────────────────────────────────────────────────────────────────────


def _asserts(told: History, answer: object) -> None:
    assert answer == 7, "not seven"


def _yields(told: History, answer: Any) -> Iterable[str]:
    return (f"{value} is odd" for value in answer if value % 2)


@pytest.mark.parametrize(
    ("check", "answer", "lines"),
    [
        (_asserts, 7, []),
        (_asserts, 8, ["not seven"]),
        (_yields, [2, 3, 5], ["3 is odd", "5 is odd"]),
        (lambda *_: "one line", None, ["one line"]),
        (lambda *_: None, None, []),
    ],
)
def test_a_check_reports_by_lines_or_by_an_assertion(check: Any, answer: object, lines: list[str]) -> None:
    found = list(Checked(check).breaches_of(History(), answer))

    assert [(breach.kind, breach.what.split("\n")[0]) for breach in found] == [
        ("WRONG", one) for one in lines
    ]


def test_rules_alone_leave_the_default_oracles_in_force() -> None:
    profile = PROFILES["posix-strict"]

    def asked(check: object) -> tuple[Any, ...]:
        return make_spec(_asserts, _asserts, check, profile, 1, "store").checks

    assert asked(None) == DEFAULT
    assert asked([Idempotent()]) == (*DEFAULT, Idempotent())
    assert asked([Durable(), Idempotent()]) == (Durable(), Idempotent())
    assert asked(_asserts) == (Checked(_asserts),)
    assert asked(Durable()) == (Durable(),)
    with pytest.raises(TypeError, match="neither an oracle nor a check"):
        asked([7])


def test_on_a_lying_disk_only_made_up_data_is_a_violation() -> None:
    told = history(K1)

    def of(profile: str, answer: dict[str, int]) -> list[str]:
        spec = make_spec(_asserts, _asserts, None, PROFILES[profile], 1, "store")
        return [breach.kind for breach in spec.breaches(told, answer)]

    assert of("posix-strict", {}) == ["LOST"]
    assert of("lying-disk", {}) == []
    assert of("lying-disk", {"k": 9}) == ["FABRICATED"]
