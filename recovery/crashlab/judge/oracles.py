"""The oracles: what must hold of a store after a crash.

An oracle compares the history up to the crash with what the store shows, and yields breaches. Oracles know
these operations of a history:

    add KEY… VALUE            set the value of the key, which may have several parts
    add_all STREAM (((KEY…), VALUE), …)     the same for many keys, all or none of them
    delete KEY…               remove the key and every key that begins with it
    fence STREAM              the stream accepts no more entries
    confirm STREAM NUMBER     the stream is confirmed up to this number, which never goes back

A stream is the first part of a key. For other operations write a check: a function of history and answer that
returns or yields a line for each thing that is wrong, or raises `AssertionError`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from recovery.crashlab.judge.outcome import UnreadableValue
from recovery.crashlab.record.history import short_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from recovery.crashlab.judge.outcome import Key, ObservedState
    from recovery.crashlab.record.history import History, Op, Value

    Check = Callable[[History, Any], "Iterable[str] | str | None"]


class NoValue(Enum):
    """The value of a key that has none."""

    HERE = "nothing"

    def __repr__(self) -> str:
        return self.value


ABSENT = NoValue.HERE


@dataclass(frozen=True, slots=True)
class KeyWrite:
    """An operation and the value that it gives to one key."""

    op: Op
    value: Value | NoValue


@lru_cache(maxsize=4)
def writes_by_key(history: History) -> dict[Key, list[KeyWrite]]:
    """Return, for each key that was ever added, every operation that set or removed its value."""
    found: defaultdict[Key, list[KeyWrite]] = defaultdict(list)
    for op in history.of("add", "add_all"):
        for key, value in added_by(op):
            found[key].append(KeyWrite(op, value))
    for op in history.of("delete"):
        for key, writes in found.items():
            if key[: len(op.args)] == op.args:
                writes.append(KeyWrite(op, ABSENT))
    return found


def added_by(op: Op) -> list[tuple[Key, Value]]:
    """Return the keys of an `add` or an `add_all`, each with its value."""
    if op.kind == "add":
        return [(op.args[:-1], op.args[-1])]
    pairs: Any = op.args[1]
    return [(key, value) for key, value in pairs]


def _last_writes(writes: list[KeyWrite]) -> tuple[list[KeyWrite], bool]:
    """Return the writes that may be the last one, and whether any write was acknowledged.

    A write certainly followed another if it was invoked after the other's acknowledgement, and was
    acknowledged.
    """
    begun_last = max((write.op.invoked for write in writes if write.op.is_acked), default=-1)
    return [write for write in writes if write.op.acked > begun_last], begun_last >= 0


def allowed_values(writes: list[KeyWrite]) -> list[Value | NoValue]:
    """Return the values that the key may have: those of all writes that may be the last one."""
    last, is_answered = _last_writes(writes)
    values = [write.value for write in last]
    return values if is_answered else [*values, ABSENT]


def certain_writes(history: History) -> list[tuple[Key, list[KeyWrite]]]:
    """Return the keys that must have one certain value, each with its last write."""
    found = []
    for key, writes in writes_by_key(history).items():
        last, is_answered = _last_writes(writes)
        if is_answered and len(last) == 1 and last[0].value is not ABSENT:
            found.append((key, last))
    return found


def violating_keys(
    history: History, shown: ObservedState
) -> Iterator[tuple[Key, Value | NoValue | UnreadableValue, list[Any]]]:
    """Yield each key whose value is not allowed, with the values that are."""
    for key, writes in writes_by_key(history).items():
        value = shown.entries.get(key, ABSENT)
        may_be = allowed_values(writes)
        if value not in may_be:
            yield key, value, may_be


def key_text(key: Key) -> str:
    """Return a key as text for people."""
    return short_text(key[0]) if len(key) == 1 else f"({', '.join(map(short_text, key))})"


@dataclass(frozen=True, slots=True, order=True)
class Breach:
    """One violated promise: its class in capitals, and what it is about."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what}"


class Oracle(Protocol):
    """A rule over one recovery."""

    def breaches(self, history: History, shown: ObservedState) -> Iterator[Breach]:
        """Yield what is wrong."""


@dataclass(frozen=True, slots=True)
class Durable:
    """Acknowledged data is there, with its exact value, and readable."""

    def breaches(self, history: History, shown: ObservedState) -> Iterator[Breach]:
        for key, value, may_be in violating_keys(history, shown):
            if value is ABSENT:
                yield Breach("LOST", f"{key_text(key)}, acknowledged as {short_text(may_be[-1])}")
            elif isinstance(value, UnreadableValue):
                yield Breach("UNREADABLE", f"{key_text(key)}: {value.reason}")


@dataclass(frozen=True, slots=True)
class NoFabrication:
    """Nothing is shown that was never added, and no value older than the last acknowledged one."""

    def breaches(self, history: History, shown: ObservedState) -> Iterator[Breach]:
        written = writes_by_key(history)
        for key, value in shown.entries.items():
            if isinstance(value, UnreadableValue):
                continue
            if key not in written:
                yield Breach("FABRICATED", f"{key_text(key)} shows {short_text(value)}; it was never added")
            elif value not in [write.value for write in written[key]]:
                yield Breach("FABRICATED", f"{key_text(key)} shows {short_text(value)}, which it never was")
            elif value not in (may_be := allowed_values(written[key])) and set(may_be) != {ABSENT}:
                yield Breach(
                    "STALE", f"{key_text(key)} shows {short_text(value)}, not {short_text(may_be[-1])}"
                )


@dataclass(frozen=True, slots=True)
class NoResurrection:
    """A key whose delete was acknowledged stays deleted."""

    def breaches(self, history: History, shown: ObservedState) -> Iterator[Breach]:
        for key, value, may_be in violating_keys(history, shown):
            if value is not ABSENT and set(may_be) == {ABSENT}:
                yield Breach("RESURRECTED", f"{key_text(key)} is back, its delete was acknowledged")


@dataclass(frozen=True, slots=True)
class Atomic:
    """Of keys that are added together, all or none are there."""

    def breaches(self, history: History, shown: ObservedState) -> Iterator[Breach]:
        written = writes_by_key(history)
        for op in history.of("add_all"):
            mine = [key for key, _ in added_by(op) if len(written[key]) == 1]
            missing = [key for key in mine if key not in shown.entries]
            if 0 < len(missing) < len(mine):
                yield Breach(
                    "PARTIAL",
                    f"{op.kind} {short_text(op.args[0])}: without {', '.join(map(key_text, missing))}",
                )


@dataclass(frozen=True, slots=True)
class PrefixPerStream:
    """Each stream is a prefix: a later key is never there without the earlier ones.

    For streams whose adds follow one another. Keys that may have been deleted are ignored.
    """

    def breaches(self, history: History, shown: ObservedState) -> Iterator[Breach]:
        first_missing: dict[Value, Key] = {}
        for key, writes in writes_by_key(history).items():
            if any(write.value is ABSENT for write in writes):
                continue
            if key not in shown.entries:
                first_missing.setdefault(key[0], key)
            elif key[0] in first_missing:
                yield Breach(
                    "HOLE", f"{key_text(key)} is there, {key_text(first_missing[key[0]])} before it is not"
                )


@dataclass(frozen=True, slots=True)
class FencedStays:
    """A stream whose fence was acknowledged is fenced, unless it was deleted. No other stream is fenced."""

    def breaches(self, history: History, shown: ObservedState) -> Iterator[Breach]:
        asked = {op.args[0] for op in history.of("fence")}
        for op in history.acked("fence"):
            stream = op.args[0]
            gone = any(later.args == (stream,) and later.acked > op.invoked for later in history.of("delete"))
            if stream not in shown.fenced and not gone:
                yield Breach("UNFENCED", f"{short_text(stream)}, its fence was acknowledged")
        for stream in shown.fenced - asked:
            yield Breach("FENCED", f"{short_text(stream)}; no fence was requested")


@dataclass(frozen=True, slots=True)
class MonotonicLAC:
    """A confirmed number never goes back, and is never larger than requested."""

    def breaches(self, history: History, shown: ObservedState) -> Iterator[Breach]:
        deleted = {op.args[0] for op in history.of("delete") if len(op.args) == 1}
        streams = dict.fromkeys(op.args[0] for op in history.of("confirm"))
        for stream in (one for one in streams if one not in deleted):
            asked: list[Any] = [op.args[1] for op in history.of("confirm") if op.args[0] == stream]
            answered: list[Any] = [op.args[1] for op in history.acked("confirm") if op.args[0] == stream]
            seen = shown.confirmed.get(stream, -1)
            if seen < max(answered, default=-1):
                yield Breach(
                    "WENT-BACK", f"{short_text(stream)} is confirmed up to {seen}, not {max(answered)}"
                )
            elif seen > max(asked):
                yield Breach(
                    "FABRICATED", f"{short_text(stream)} is confirmed up to {seen}; this was never requested"
                )


@dataclass(frozen=True, slots=True)
class Checked:
    """A check of the user. It gets the answer as the recover function returned it."""

    check: Check

    def breaches_of(self, history: History, answer: object) -> Iterator[Breach]:
        try:
            found = self.check(history, answer)
            lines = [found] if isinstance(found, str) else list(found or ())
        except AssertionError as error:
            lines = [f"{error}" or f"{getattr(self.check, '__name__', 'the check')} does not hold"]
        for line in lines:
            yield Breach("WRONG", line)


# ── rules over more than one recovery ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Idempotent:
    """Further recoveries show the same state. Applied to every n-th state."""

    times: int = 1
    every: int = 3


@dataclass(frozen=True, slots=True)
class ContinueAfterRecovery:
    """The store works after a recovery, and nothing is lost then either.

    `go_on(root, ctx)` is a workload of its own; its marks follow those of the crash. What the first recovery
    showed counts as acknowledged, because a reader may have seen it.
    """

    go_on: Callable[..., None]
    every: int = 4


@dataclass(frozen=True, slots=True)
class FsckClean:
    """The store's own verifier agrees: `verify(root)` returns its findings, of which there must be none."""

    verify: Callable[..., Iterable[str]]
    every: int = 4


@dataclass(frozen=True, slots=True)
class OpenSucceedsOrNamed:
    """After a crash the store opens. On damaged files it may instead refuse with one of these errors.

    Without this rule every exception after a crash is a violation, and every exception on damaged files
    counts as named. A program that is not a Python function refuses with an exit code; `codes` are the named
    ones.
    """

    named: tuple[type[BaseException], ...] = (Exception,)
    codes: frozenset[int] = frozenset(range(1, 126))


@dataclass(frozen=True, slots=True)
class NoHang:
    """No recovery takes longer. That no recovery dies of a signal is always checked."""

    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class ReadStays:
    """Entries that a recovery showed after a kill are still there after a power cut."""


@dataclass(frozen=True, slots=True)
class LastSyncUnwitnessed:
    """Nothing proves yet what the very last sync of this kind of file made durable.

    In a log whose groups each prove the groups before them, the last group is ambiguous: if it is damaged, no
    reader can tell it from a write that never happened. The rot layer counts such a loss as undecidable.
    Losses of what was acknowledged before that sync are not excused.
    """

    kind: str


Rule = (
    Idempotent
    | ContinueAfterRecovery
    | FsckClean
    | OpenSucceedsOrNamed
    | NoHang
    | ReadStays
    | LastSyncUnwitnessed
)

DEFAULT: tuple[Oracle, ...] = (Durable(), NoFabrication(), NoResurrection(), Atomic())

__all__ = [
    "DEFAULT",
    "Atomic",
    "Breach",
    "Checked",
    "ContinueAfterRecovery",
    "Durable",
    "FencedStays",
    "FsckClean",
    "Idempotent",
    "LastSyncUnwitnessed",
    "MonotonicLAC",
    "NoFabrication",
    "NoHang",
    "NoResurrection",
    "OpenSucceedsOrNamed",
    "Oracle",
    "PrefixPerStream",
    "ReadStays",
    "Rule",
]
