"""What must hold of a store after a crash, each rule an object of its own.

An oracle reads the history up to the crash and what the store shows, and answers with breaches. These words
of a history are understood:

    add KEY… VALUE            the key's value is that one from now on; the key may have several parts
    add_all STREAM (((KEY…), VALUE), …)     the same for many, all or none of them
    delete KEY…               the key, and every key that begins like that, has no value
    fence STREAM              the stream takes no more
    confirm STREAM NUMBER     the stream is confirmed up to there, and that never goes back

A stream is the first part of a key. Whoever uses other words writes a check: any function of history and
answer that returns or yields a line for each thing that is wrong, or raises `AssertionError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from recovery.crashlab.history import shortly
from recovery.crashlab.possible import ABSENT, added_by, contrary, name, possible, writes_of
from recovery.crashlab.shown import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from recovery.crashlab.history import History, Value
    from recovery.crashlab.shown import Key, Shown

    Check = Callable[[History, Any], "Iterable[str] | str | None"]


@dataclass(frozen=True, slots=True, order=True)
class Breach:
    """One thing that must not be: its class, in capitals, and what it is about."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what}"


class Oracle(Protocol):
    """A rule over one recovery."""

    def breaches(self, history: History, shown: Shown) -> Iterator[Breach]:
        """What is wrong, if anything is."""


@dataclass(frozen=True, slots=True)
class Durable:
    """What was acknowledged is there, with its exact value, and can be read."""

    def breaches(self, history: History, shown: Shown) -> Iterator[Breach]:
        for key, value, may_be in contrary(history, shown):
            if value is ABSENT:
                yield Breach("LOST", f"{name(key)}, acknowledged as {shortly(may_be[-1])}")
            elif isinstance(value, Unreadable):
                yield Breach("UNREADABLE", f"{name(key)}: {value.reason}")


@dataclass(frozen=True, slots=True)
class NoFabrication:
    """Nothing is there that nobody asked for, nor an older value than the last that was acknowledged."""

    def breaches(self, history: History, shown: Shown) -> Iterator[Breach]:
        written = writes_of(history)
        for key, value in shown.entries.items():
            if isinstance(value, Unreadable):
                continue
            if key not in written:
                yield Breach("FABRICATED", f"{name(key)} shows {shortly(value)}; nobody added it")
            elif value not in [write.value for write in written[key]]:
                yield Breach("FABRICATED", f"{name(key)} shows {shortly(value)}, which it never was")
            elif value not in (may_be := possible(written[key])) and set(may_be) != {ABSENT}:
                yield Breach("STALE", f"{name(key)} shows {shortly(value)}, not {shortly(may_be[-1])}")


@dataclass(frozen=True, slots=True)
class NoResurrection:
    """What was deleted, and that acknowledged, stays away."""

    def breaches(self, history: History, shown: Shown) -> Iterator[Breach]:
        for key, value, may_be in contrary(history, shown):
            if value is not ABSENT and set(may_be) == {ABSENT}:
                yield Breach("RESURRECTED", f"{name(key)} is back, its delete was acknowledged")


@dataclass(frozen=True, slots=True)
class Atomic:
    """Of what was to be added together there is all or nothing."""

    def breaches(self, history: History, shown: Shown) -> Iterator[Breach]:
        written = writes_of(history)
        for op in history.of("add_all"):
            mine = [key for key, _ in added_by(op) if len(written[key]) == 1]
            missing = [key for key in mine if key not in shown.entries]
            if 0 < len(missing) < len(mine):
                yield Breach(
                    "PARTIAL", f"{op.kind} {shortly(op.args[0])}: without {', '.join(map(name, missing))}"
                )


@dataclass(frozen=True, slots=True)
class PrefixPerStream:
    """Of each stream there is a beginning: what was added later is not there without what was added before.

    For streams whose additions follow one another; keys that a delete may have taken are left out.
    """

    def breaches(self, history: History, shown: Shown) -> Iterator[Breach]:
        first_missing: dict[Value, Key] = {}
        for key, writes in writes_of(history).items():
            if any(write.value is ABSENT for write in writes):
                continue
            if key not in shown.entries:
                first_missing.setdefault(key[0], key)
            elif key[0] in first_missing:
                yield Breach("HOLE", f"{name(key)} is there, {name(first_missing[key[0]])} before it is not")


@dataclass(frozen=True, slots=True)
class FencedStays:
    """A stream whose fence was acknowledged is fenced, unless it was deleted; none is that nobody fenced."""

    def breaches(self, history: History, shown: Shown) -> Iterator[Breach]:
        asked = {op.args[0] for op in history.of("fence")}
        for op in history.acked("fence"):
            stream = op.args[0]
            gone = any(later.args == (stream,) and later.acked > op.invoked for later in history.of("delete"))
            if stream not in shown.fenced and not gone:
                yield Breach("UNFENCED", f"{shortly(stream)}, its fence was acknowledged")
        for stream in shown.fenced - asked:
            yield Breach("FENCED", f"{shortly(stream)}; nobody asked for it")


@dataclass(frozen=True, slots=True)
class MonotonicLAC:
    """What was confirmed up to a number stays confirmed up to there, and never further than was asked."""

    def breaches(self, history: History, shown: Shown) -> Iterator[Breach]:
        deleted = {op.args[0] for op in history.of("delete") if len(op.args) == 1}
        streams = dict.fromkeys(op.args[0] for op in history.of("confirm"))
        for stream in (one for one in streams if one not in deleted):
            asked: list[Any] = [op.args[1] for op in history.of("confirm") if op.args[0] == stream]
            answered: list[Any] = [op.args[1] for op in history.acked("confirm") if op.args[0] == stream]
            seen = shown.confirmed.get(stream, -1)
            if seen < max(answered, default=-1):
                yield Breach("WENT-BACK", f"{shortly(stream)} is confirmed up to {seen}, not {max(answered)}")
            elif seen > max(asked):
                yield Breach("FABRICATED", f"{shortly(stream)} is confirmed up to {seen}; nobody said so")


@dataclass(frozen=True, slots=True)
class Checked:
    """A check of the user's own; it is given the answer as the recover function returned it."""

    check: Check

    def breaches_of(self, history: History, answer: object) -> Iterator[Breach]:
        try:
            said = self.check(history, answer)
            lines = [said] if isinstance(said, str) else list(said or ())
        except AssertionError as error:
            lines = [f"{error}" or f"{getattr(self.check, '__name__', 'the check')} does not hold"]
        for line in lines:
            yield Breach("WRONG", line)


# ── rules over more than one recovery ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Idempotent:
    """Recovered again, once or more often, the store shows the same; tried on each so many-th state."""

    times: int = 1
    every: int = 3


@dataclass(frozen=True, slots=True)
class ContinueAfterRecovery:
    """The store works on behind a recovery, and nothing is lost then either.

    `go_on(root, ctx)` is a workload of its own; the oracles see its marks behind those of the crash. What
    the first recovery showed counts as acknowledged: somebody may have read it.
    """

    go_on: Callable[..., None]
    every: int = 4


@dataclass(frozen=True, slots=True)
class FsckClean:
    """The store's own verifier agrees: `verify(root)` returns what it finds, which is nothing."""

    verify: Callable[..., Iterable[str]]
    every: int = 4


@dataclass(frozen=True, slots=True)
class OpenSucceedsOrNamed:
    """Behind a crash the store opens; on damaged files it may also refuse, with one of these errors.

    Without this rule every exception behind a crash is a violation, and on damage any counts as named.
    A program that is no Python function refuses with an exit code; `codes` are the named ones.
    """

    named: tuple[type[BaseException], ...] = (Exception,)
    codes: frozenset[int] = frozenset(range(1, 126))


@dataclass(frozen=True, slots=True)
class NoHang:
    """No recovery lasts longer. (That none dies of a signal is always asked.)"""

    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class ReadStays:
    """What a recovery behind a kill has shown is there after a power cut, too: somebody may have read it."""


@dataclass(frozen=True, slots=True)
class LastSyncUnwitnessed:
    """What the very last sync of this kind of file made durable has no witness yet.

    Of a log whose every group vouches for the ones before it, the last group is ambiguous by nature: if it is
    damaged, no reader can tell it from a write that never came. For the rot layer: such a loss is counted
    as undecidable. What was acknowledged before that sync is not excused.
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
