"""What each key may have after a crash, by what was asked and what was answered before it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recovery.crashlab.history import shortly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab.history import History, Op, Value
    from recovery.crashlab.shown import Key, Shown, Unreadable


class Nothing(Enum):
    """The value of a key that has none."""

    HERE = "nothing"

    def __repr__(self) -> str:
        return self.value


ABSENT = Nothing.HERE


@dataclass(frozen=True, slots=True)
class Write:
    """An operation, as it is seen by one key."""

    op: Op
    value: Value | Nothing


@lru_cache(maxsize=4)
def writes_of(history: History) -> dict[Key, list[Write]]:
    """For each key that was ever added, everything that gave it a value or took it away."""
    found: defaultdict[Key, list[Write]] = defaultdict(list)
    for op in history.of("add", "add_all"):
        for key, value in added_by(op):
            found[key].append(Write(op, value))
    for op in history.of("delete"):
        for key, writes in found.items():
            if key[: len(op.args)] == op.args:
                writes.append(Write(op, ABSENT))
    return found


def added_by(op: Op) -> list[tuple[Key, Value]]:
    """The keys of an `add` or an `add_all`, each with its value."""
    if op.kind == "add":
        return [(op.args[:-1], op.args[-1])]
    pairs: Any = op.args[1]
    return [(key, value) for key, value in pairs]


def _unfollowed(writes: list[Write]) -> tuple[list[Write], bool]:
    """Those that no other is known to have followed, and whether any was answered at all.

    One is known to have followed another when it was asked for after the other's answer, and was answered.
    """
    begun_last = max((write.op.invoked for write in writes if write.op.is_acked), default=-1)
    return [write for write in writes if write.op.acked > begun_last], begun_last >= 0


def possible(writes: list[Write]) -> list[Value | Nothing]:
    """What the key may have now: the value of any write that no other is known to have followed."""
    last, is_answered = _unfollowed(writes)
    values = [write.value for write in last]
    return values if is_answered else [*values, ABSENT]


def settled(history: History) -> list[tuple[Key, list[Write]]]:
    """The keys that must have one certain value now, each with the writes that could have made it."""
    found = []
    for key, writes in writes_of(history).items():
        last, is_answered = _unfollowed(writes)
        if is_answered and len(last) == 1 and last[0].value is not ABSENT:
            found.append((key, last))
    return found


def contrary(history: History, shown: Shown) -> Iterator[tuple[Key, Value | Nothing | Unreadable, list[Any]]]:
    """Each key that shows what it cannot have, with what it could."""
    for key, writes in writes_of(history).items():
        value = shown.entries.get(key, ABSENT)
        may_be = possible(writes)
        if value not in may_be:
            yield key, value, may_be


def name(key: Key) -> str:
    """A key for people."""
    return shortly(key[0]) if len(key) == 1 else f"({', '.join(map(shortly, key))})"
