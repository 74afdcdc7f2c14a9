"""The verdict on how a store handles a damage: compare its state with the state without the damage.

Only a breach of what was acknowledged counts: with a history, unacknowledged data may be gone. Without a
history, and for facts that no operation of the history names, everything shown before counts as acknowledged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from recovery.crashlab.judge.oracles import (
    ABSENT,
    Breach,
    Durable,
    FencedStays,
    MonotonicLAC,
    NoFabrication,
    NoResurrection,
    OpenSucceedsOrNamed,
    added_by,
    key_text,
)
from recovery.crashlab.judge.outcome import (
    Answered,
    Died,
    Hung,
    ObservedState,
    Outcome,
    RecoveryRefused,
    UnreadableValue,
    observed_state_of,
)
from recovery.crashlab.record.history import History, Op, short_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.crashlab.judge.oracles import NoValue, Oracle
    from recovery.crashlab.judge.outcome import Key
    from recovery.crashlab.record.history import Value

_ANY_ERROR = OpenSucceedsOrNamed()
_OF_ENTRIES = (Durable(), NoFabrication(), NoResurrection())


class DamageVerdict(StrEnum):
    """The verdicts, from good to bad."""

    HARMLESS = "harmless"  # the store shows everything acknowledged, as without the damage
    REPAIRED = "repaired"  # the same, and a note of the store names the damaged file
    # it refused with a promised error, or reports exactly the unreadable entries as unreadable
    DETECTED = "detected"
    REPORTED = "reported"  # it shows less, and notes name the damaged file or everything that is missing
    UNNAMED = "unnamed"  # it stopped with an error that it does not promise
    HANG = "hang"
    SIGNAL = "signal"
    SILENT = "silent"  # something acknowledged is missing or changed, and the store reports nothing

    @property
    def is_good(self) -> bool:
        return self in (
            DamageVerdict.HARMLESS,
            DamageVerdict.REPAIRED,
            DamageVerdict.DETECTED,
            DamageVerdict.REPORTED,
        )


def verdict_on_damage(
    undamaged: object,
    outcome: Outcome,
    history: History | None = None,
    rule: OpenSucceedsOrNamed = _ANY_ERROR,
    damaged: str = "",
) -> DamageVerdict:
    """Return the verdict on an outcome; `undamaged` is the answer of the store without the damage.

    `damaged` is the path of the damaged file. Notes in the answer that were not there without the damage
    count as a report only if they name this file or everything that is missing, because any other note could
    be about something else.
    """
    match outcome:
        case Died():
            return DamageVerdict.SIGNAL
        case Hung():
            return DamageVerdict.HANG
        case RecoveryRefused():
            return DamageVerdict.DETECTED if is_named(outcome, rule) else DamageVerdict.UNNAMED
        case Answered(answer):
            return _judge_answer(undamaged, answer, history, damaged)


def _judge_answer(undamaged: object, answer: object, history: History | None, damaged: str) -> DamageVerdict:
    before = observed_state_of(undamaged).notes
    notes = [note for note in observed_state_of(answer).notes if note not in before]
    is_named = any(_names_file(note, damaged) for note in notes)
    found = _differences(undamaged, answer, history or History())
    first = next(found, None)
    if first is not None:
        every = chain([first], found)
        is_told = all(one.is_loss and (is_named or _name_key(notes, one.key)) for one in every)
        return DamageVerdict.REPORTED if is_told else DamageVerdict.SILENT
    if _unreadable(answer) - _unreadable(undamaged):
        return DamageVerdict.DETECTED
    return DamageVerdict.REPAIRED if is_named else DamageVerdict.HARMLESS


def _names_file(note: str, path: str) -> bool:
    """Return whether the note names the file, by its path under the root or by its name alone."""
    whole, last = re.escape(path), re.escape(PurePosixPath(path).name)
    return bool(path) and bool(re.search(rf"(?<![\w.-])({whole}|(?<!/){last})(?![\w/-]|\.\w)", note))


def _name_key(notes: Sequence[str], key: Key) -> bool:
    """Return whether a note names the key, as reports print it or by its text. A number alone is no name."""
    first = key[0]
    if len(key) == 1 and not isinstance(first, str | bytes):
        return False
    texts = {key_text(key)} | ({first} if len(key) == 1 and isinstance(first, str) and first else set())
    pattern = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, texts))})(?!\w)")
    return any(map(pattern.search, notes))


def is_named(refusal: RecoveryRefused, rule: OpenSucceedsOrNamed) -> bool:
    """Return whether it is one of the errors that the store promises."""
    named = {f"{kind.__module__}.{kind.__qualname__}" for kind in rule.named}
    return not named.isdisjoint(refusal.types) or refusal.exit_code in rule.codes


def harmful_differences(
    undamaged: object, answer: object, history: History | None = None
) -> Iterator[Breach]:
    """Yield everything acknowledged that is missing or changed and not reported as unreadable.

    An `UnreadableValue` covers its key, and missing keys and facts that begin with this key.
    """
    return (one.breach for one in _differences(undamaged, answer, history or History()))


@dataclass(frozen=True, slots=True)
class _HarmfulDifference:
    key: Key
    breach: Breach

    @property
    def is_loss(self) -> bool:
        """Return whether the store shows less, but nothing wrong."""
        return self.breach.kind in ("LOST", "UNFENCED", "WENT-BACK")


def _differences(undamaged: object, answer: object, history: History) -> Iterator[_HarmfulDifference]:
    if undamaged == answer:
        return
    before, now = observed_state_of(undamaged), observed_state_of(answer)
    if not _is_shown(undamaged) or not _is_shown(answer):
        yield _HarmfulDifference(
            (), Breach("ALTERED", f"{short_text(answer)}, which was {short_text(undamaged)}")
        )
        return
    yield from _entries(before, now, history)
    yield from _fences(before, now, history)
    yield from _confirmed(before, now, history)


def _is_shown(answer: object) -> bool:
    """Return whether oracles can read the answer."""
    return isinstance(answer, ObservedState | Mapping)


def _entries(before: ObservedState, now: ObservedState, history: History) -> Iterator[_HarmfulDifference]:
    for key in dict.fromkeys((*before.entries, *now.entries)):
        was, value = before.entries.get(key, ABSENT), now.entries.get(key, ABSENT)
        if value == was or isinstance(value, UnreadableValue) or _may_show(history, key, value):
            continue
        if value is ABSENT and _says_unreadable(now, key):
            continue
        if value is ABSENT:
            breach = Breach("LOST", f"{key_text(key)}, which was {short_text(was)}")
        elif was is ABSENT:
            breach = Breach(
                "FABRICATED", f"{key_text(key)} shows {short_text(value)}, where there was nothing"
            )
        else:
            breach = Breach(
                "ALTERED", f"{key_text(key)} shows {short_text(value)}, which was {short_text(was)}"
            )
        yield _HarmfulDifference(key, breach)


def _fences(before: ObservedState, now: ObservedState, history: History) -> Iterator[_HarmfulDifference]:
    for stream in sorted(before.fenced ^ now.fenced, key=repr):
        is_told = stream in before.fenced and _says_unreadable(now, (stream,))
        fact = ObservedState(fenced=now.fenced & {stream})
        if not is_told and not _may_hold(FencedStays(), history, "fence", stream, fact):
            kind = "UNFENCED" if stream in before.fenced else "FENCED"
            breach = Breach(kind, f"{short_text(stream)}, which it was not before the damage")
            yield _HarmfulDifference((stream,), breach)


def _confirmed(before: ObservedState, now: ObservedState, history: History) -> Iterator[_HarmfulDifference]:
    for stream in dict.fromkeys((*before.confirmed, *now.confirmed)):
        was, number = before.confirmed.get(stream, -1), now.confirmed.get(stream, -1)
        is_told = stream not in now.confirmed and _says_unreadable(now, (stream,))
        fact = ObservedState(confirmed={stream: number})
        if number == was or is_told or _may_hold(MonotonicLAC(), history, "confirm", stream, fact):
            continue
        kind = "WENT-BACK" if number < was else "FABRICATED"
        breach = Breach(kind, f"{short_text(stream)} is confirmed up to {number}, not {was}")
        yield _HarmfulDifference((stream,), breach)


def _says_unreadable(shown: ObservedState, key: Key) -> bool:
    return any(isinstance(shown.entries.get(key[:size]), UnreadableValue) for size in range(len(key) + 1))


def _unreadable(answer: object) -> set[Key]:
    return {
        key for key, value in observed_state_of(answer).entries.items() if isinstance(value, UnreadableValue)
    }


# ── what the history allows ────────────────────────────────────────────────────────────────────────────────


def _may_show(history: History, key: Key, value: Value | UnreadableValue | NoValue) -> bool:
    """Return whether the value is no breach of anything acknowledged for this key."""
    seen = tuple(_seen_by(history, key))
    entries: Mapping[Key, Value | UnreadableValue] = {} if value is ABSENT else {key: value}
    return bool(seen) and not any(_breaches(oracle, seen, ObservedState(entries)) for oracle in _OF_ENTRIES)


def _seen_by(history: History, key: Key) -> Iterator[Op]:
    """Yield the operations that concern this key, as adds and deletes of single keys."""
    for op in history.of("add", "add_all"):
        for added, value in added_by(op):
            if added == key:
                yield Op("add", (*key, value), op.invoked, op.acked)
    yield from (op for op in history.of("delete") if key[: len(op.args)] == op.args)


def _may_hold(oracle: Oracle, history: History, word: str, stream: Value, fact: ObservedState) -> bool:
    seen = tuple(op for op in history.of(word, "delete") if op.args[:1] == (stream,))
    return any(op.kind == word for op in seen) and not _breaches(oracle, seen, fact)


def _breaches(oracle: Oracle, ops: tuple[Op, ...], shown: ObservedState) -> bool:
    return next(oracle.breaches(History(ops), shown), None) is not None
