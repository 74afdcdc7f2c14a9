"""How a store has taken a damage: what it shows afterwards against what it showed before.

Only a breach of what was acknowledged counts: with a history, what nobody acknowledged may be gone. Without
one, and for facts that no operation of the history names, all that was shown before counts as acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from recovery.crashlab.history import History, Op, shortly
from recovery.crashlab.oracles import (
    Breach,
    Durable,
    FencedStays,
    MonotonicLAC,
    NoFabrication,
    NoResurrection,
    OpenSucceedsOrNamed,
)
from recovery.crashlab.outcome import Answered, Died, Hung, Outcome, Refused
from recovery.crashlab.possible import ABSENT, added_by, name
from recovery.crashlab.shown import Shown, Unreadable, as_shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab.history import Value
    from recovery.crashlab.oracles import Oracle
    from recovery.crashlab.possible import Nothing
    from recovery.crashlab.shown import Key

_ANY_ERROR = OpenSucceedsOrNamed()
_OF_ENTRIES = (Durable(), NoFabrication(), NoResurrection())


class Verdict(StrEnum):
    """From good to bad."""

    HARMLESS = "harmless"  # shown is what was acknowledged, as without the damage
    REPAIRED = "repaired"  # the same, and the store said that there was something
    DETECTED = "detected"  # it refused with a named error, or says "unreadable" of exactly what is
    UNNAMED = "unnamed"  # it stopped with an error that is none of the named
    HANG = "hang"
    SIGNAL = "signal"
    SILENT = "silent"  # something acknowledged is missing or other than it was, without a word

    @property
    def is_good(self) -> bool:
        return self in (Verdict.HARMLESS, Verdict.REPAIRED, Verdict.DETECTED)


def judge(
    undamaged: object,
    outcome: Outcome,
    history: History | None = None,
    rule: OpenSucceedsOrNamed = _ANY_ERROR,
    said: str = "",
) -> Verdict:
    """What to think of the outcome, where `undamaged` is the answer without the damage.

    `said` is what the store itself reported to have mended, if the caller knows.
    """
    match outcome:
        case Died():
            return Verdict.SIGNAL
        case Hung():
            return Verdict.HANG
        case Refused():
            return Verdict.DETECTED if is_named(outcome, rule) else Verdict.UNNAMED
        case Answered(answer):
            return _judge_answer(undamaged, answer, history, said)


def _judge_answer(undamaged: object, answer: object, history: History | None, said: str) -> Verdict:
    if next(differences(undamaged, answer, history), None):
        return Verdict.SILENT
    if _unreadable(answer) - _unreadable(undamaged):
        return Verdict.DETECTED
    return Verdict.REPAIRED if said else Verdict.HARMLESS


def is_named(refusal: Refused, rule: OpenSucceedsOrNamed) -> bool:
    """Whether it is one of the errors that the store promises."""
    named = {f"{kind.__module__}.{kind.__qualname__}" for kind in rule.named}
    return not named.isdisjoint(refusal.types) or refusal.exit_code in rule.codes


def differences(undamaged: object, answer: object, history: History | None = None) -> Iterator[Breach]:
    """Everything acknowledged that is shown no more, or otherwise, without the word "unreadable".

    One `Unreadable` stands for its key and for what is missing of the keys and facts that begin with it.
    """
    if undamaged == answer:
        return
    before, now = as_shown(undamaged), as_shown(answer)
    if not _is_shown(undamaged) or not _is_shown(answer):
        yield Breach("ALTERED", f"{shortly(answer)}, which was {shortly(undamaged)}")
        return
    yield from _entries(before, now, history or History())
    yield from _fences(before, now, history or History())
    yield from _confirmed(before, now, history or History())


def _is_shown(answer: object) -> bool:
    """Whether oracles can read it."""
    return isinstance(answer, Shown | Mapping)


def _entries(before: Shown, now: Shown, history: History) -> Iterator[Breach]:
    for key in dict.fromkeys((*before.entries, *now.entries)):
        was, value = before.entries.get(key, ABSENT), now.entries.get(key, ABSENT)
        if value == was or isinstance(value, Unreadable) or _may_show(history, key, value):
            continue
        if value is ABSENT and _says_unreadable(now, key):
            continue
        if value is ABSENT:
            yield Breach("LOST", f"{name(key)}, which was {shortly(was)}")
        elif was is ABSENT:
            yield Breach("FABRICATED", f"{name(key)} shows {shortly(value)}, where there was nothing")
        else:
            yield Breach("ALTERED", f"{name(key)} shows {shortly(value)}, which was {shortly(was)}")


def _fences(before: Shown, now: Shown, history: History) -> Iterator[Breach]:
    for stream in sorted(before.fenced ^ now.fenced, key=repr):
        is_told = stream in before.fenced and _says_unreadable(now, (stream,))
        fact = Shown(fenced=now.fenced & {stream})
        if not is_told and not _may_hold(FencedStays(), history, "fence", stream, fact):
            kind = "UNFENCED" if stream in before.fenced else "FENCED"
            yield Breach(kind, f"{shortly(stream)}, which it was not before the damage")


def _confirmed(before: Shown, now: Shown, history: History) -> Iterator[Breach]:
    for stream in dict.fromkeys((*before.confirmed, *now.confirmed)):
        was, number = before.confirmed.get(stream, -1), now.confirmed.get(stream, -1)
        is_told = stream not in now.confirmed and _says_unreadable(now, (stream,))
        fact = Shown(confirmed={stream: number})
        if number == was or is_told or _may_hold(MonotonicLAC(), history, "confirm", stream, fact):
            continue
        kind = "WENT-BACK" if number < was else "FABRICATED"
        yield Breach(kind, f"{shortly(stream)} is confirmed up to {number}, not {was}")


def _says_unreadable(shown: Shown, key: Key) -> bool:
    return any(isinstance(shown.entries.get(key[:size]), Unreadable) for size in range(len(key) + 1))


def _unreadable(answer: object) -> set[Key]:
    return {key for key, value in as_shown(answer).entries.items() if isinstance(value, Unreadable)}


# ── what the history allows ────────────────────────────────────────────────────────────────────────────────


def _may_show(history: History, key: Key, value: Value | Unreadable | Nothing) -> bool:
    """Whether this is no breach of anything acknowledged, as far as the key is concerned."""
    seen = tuple(_seen_by(history, key))
    entries: Mapping[Key, Value | Unreadable] = {} if value is ABSENT else {key: value}
    return bool(seen) and not any(_breaches(oracle, seen, Shown(entries)) for oracle in _OF_ENTRIES)


def _seen_by(history: History, key: Key) -> Iterator[Op]:
    """The history as it is seen by one key."""
    for op in history.of("add", "add_all"):
        for added, value in added_by(op):
            if added == key:
                yield Op("add", (*key, value), op.invoked, op.acked)
    yield from (op for op in history.of("delete") if key[: len(op.args)] == op.args)


def _may_hold(oracle: Oracle, history: History, word: str, stream: Value, fact: Shown) -> bool:
    seen = tuple(op for op in history.of(word, "delete") if op.args[:1] == (stream,))
    return any(op.kind == word for op in seen) and not _breaches(oracle, seen, fact)


def _breaches(oracle: Oracle, ops: tuple[Op, ...], shown: Shown) -> bool:
    return next(oracle.breaches(History(ops), shown), None) is not None
