"""Finds in a history what ledgers over several bookies must never show. Pure.

A ledger has one writer, so no search for an order is needed: entry ids are the order.

1. Every call ends, and ends once.
2. An acknowledged entry is never lost: it is not after the end of the closed ledger, and readers get it.
3. An entry id has one payload for all clients and for ever, and a payload has one id. Nothing is read that
   was not written, nor what certainly was not added.
4. Ids are in the order of the appends, and those acknowledged have no gap.
5. Readers see prefixes: every entry from the first that was asked for to the last add confirmed, and none
   after it. Of a closed ledger the last entry is confirmed.
6. The last add confirmed that one reader sees never goes back, and is not after the end.
7. All closes, take-overs and readers of the closed ledger agree on its last entry and its length, which is
   the sum of its payloads.
8. Nothing is acknowledged that was begun after the ledger was closed or taken over.

An append of unknown outcome may be in the ledger or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from history import Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


class Call(NamedTuple):
    """A call with its end. `began` and `ended` are positions in the history."""

    op: int
    began: int
    ended: int
    outcome: EventKind
    """INVOKE if it has not ended."""
    asked: Mapping[str, Any]
    answer: Mapping[str, Any]

    @property
    def is_ok(self) -> bool:
        return self.outcome is EventKind.OK

    def __str__(self) -> str:
        return f"{self.asked['call']} {self.op} of {self.asked['client']}"


@dataclass(slots=True)
class _Ledger:
    """The calls on one ledger."""

    appends: list[Call] = field(default_factory=list)
    """In the order in which they began."""
    ends: list[Call] = field(default_factory=list)
    """The closes and take-overs."""
    reads: list[Call] = field(default_factory=list)


@dataclass(slots=True)
class Verdict:
    """The result of the check of a history."""

    problems: list[str]
    ledgers: int
    calls: int
    acknowledged: int
    """Entries."""
    unknown: int
    """Appends whose outcome is not known."""


def check(events: Sequence[Event]) -> Verdict:
    """Return all problems of a history, and how much it has tried."""
    calls, problems = _pair(events)
    ledgers: dict[int, _Ledger] = {}
    for call in calls:
        if "ledger" in call.asked:
            ledger = ledgers.setdefault(call.asked["ledger"], _Ledger())
            match call.asked["call"]:
                case "append":
                    ledger.appends.append(call)
                case "close" | "take_over":
                    ledger.ends.append(call)
                case "read":
                    ledger.reads.append(call)
    created = [call.answer["ledger"] for call in calls if call.asked["call"] == "create" and call.is_ok]
    problems += [f"ledger {one} was created twice" for one in set(created) if created.count(one) > 1]
    for ledger_id, ledger in ledgers.items():
        problems += (f"ledger {ledger_id}: {problem}" for problem in _problems_of(ledger))
    appends = [call for ledger in ledgers.values() for call in ledger.appends]
    return Verdict(
        problems,
        len(ledgers),
        len(calls),
        sum(call.is_ok for call in appends),
        sum(call.outcome is EventKind.UNKNOWN for call in appends),
    )


def _pair(events: Iterable[Event]) -> tuple[list[Call], list[str]]:
    """Return the calls in the order of their begins, and rule 1."""
    calls: dict[int, Call] = {}
    problems = []
    for position, event in enumerate(events):
        if event.kind is EventKind.INVOKE:
            if event.op in calls:
                problems.append(f"call {event.op} begins twice")
            calls[event.op] = Call(event.op, position, position, event.kind, event.fields, {})
        elif event.op not in calls:
            problems.append(f"call {event.op} ends, and never began")
        elif calls[event.op].outcome is not EventKind.INVOKE:
            problems.append(f"{calls[event.op]} ends twice")
        else:
            begun = calls[event.op]
            calls[event.op] = begun._replace(ended=position, outcome=event.kind, answer=event.fields)
    problems += [f"{call} has not ended" for call in calls.values() if call.outcome is EventKind.INVOKE]
    return list(calls.values()), problems


def _problems_of(ledger: _Ledger) -> Iterator[str]:
    writers = {call.asked["client"] for call in ledger.appends}
    if len(writers) > 1:
        yield f"it has the writers {', '.join(sorted(writers))}"
    content: dict[int, str] = {
        call.answer["entry"]: call.asked["payload"] for call in ledger.appends if call.is_ok
    }
    yield from _acknowledgement_problems(ledger, content)
    yield from _content_problems(ledger, content)
    yield from _prefix_problems(ledger)
    yield from _end_problems(ledger, content)


def _acknowledgement_problems(ledger: _Ledger, content: dict[int, str]) -> Iterator[str]:
    """Rule 4 for what was acknowledged, and rule 8."""
    acknowledged = [call for call in ledger.appends if call.is_ok]
    for before, after in pairwise(acknowledged):
        if after.answer["entry"] <= before.answer["entry"]:
            yield f"{after} has entry {after.answer['entry']}, and {before}, which began before, a later one"
    missing = set(range(max(content, default=-1))) - set(content)
    if missing:
        yield f"entry {max(content)} is acknowledged, and {sorted(missing)[:5]} are not"
    for end in ledger.ends:
        if end.is_ok:
            late = [call for call in acknowledged if call.began > end.ended]
            yield from (f"{call} began after {end} had ended, and is acknowledged" for call in late)


def _content_problems(ledger: _Ledger, content: dict[int, str]) -> Iterator[str]:
    """Rule 3, and rule 4 for what was read. Adds what was read to the content."""
    appends = {call.asked["payload"]: call for call in ledger.appends}
    if len(appends) < len(ledger.appends):
        yield "two appends have the same payload, so that the history proves nothing"
    for read in ledger.reads:
        for entry_id, payload in read.answer.get("entries", ()):
            known = content.setdefault(entry_id, payload)
            append = appends.get(payload)
            if known != payload:
                yield f"{read}: entry {entry_id} is {payload!r}, and elsewhere {known!r}"
            if append is None or append.began > read.ended:
                yield f"{read}: entry {entry_id} is {payload!r}, which was not written"
            elif append.outcome is EventKind.FAIL:
                yield f"{read}: entry {entry_id} is {payload!r}, and {append} has failed"
    order = [appends[content[entry_id]] for entry_id in sorted(content) if content[entry_id] in appends]
    for before, after in pairwise(order):
        if after.began <= before.began:
            yield f"{after} has a later entry than {before}, and began no later"


def _prefix_problems(ledger: _Ledger) -> Iterator[str]:
    """Rules 5 and 6."""
    seen: dict[tuple[str, str], int] = {}
    for read in sorted((read for read in ledger.reads if read.is_ok), key=lambda read: read.ended):
        lac = read.answer["lac"]
        ids = [entry_id for entry_id, _ in read.answer["entries"]]
        expected = list(range(read.asked["first"], lac + 1))
        if ids != expected:
            odd = sorted(set(ids) ^ set(expected))[:5]
            yield f"{read}: {len(ids)} entries, and the last confirmed is {lac}; missing, or too many: {odd}"
        if read.answer.get("last", lac) != lac:
            yield f"{read}: the last confirmed is {lac}, and the ledger ends at {read.answer['last']}"
        reader = (read.asked["client"], read.asked["reader"])
        if lac < seen.get(reader, -1):
            yield f"{read}: the last add confirmed goes back from {seen[reader]} to {lac}"
        seen[reader] = lac


def _end_problems(ledger: _Ledger, content: dict[int, str]) -> Iterator[str]:
    """Rule 7, and what rules 2 and 6 say of the end."""
    found = {
        (call.answer["last"], call.answer["length"]): call
        for call in (*ledger.ends, *ledger.reads)
        if "last" in call.answer
    }
    if len(found) > 1:
        ends = ", ".join(f"{end} by {call}" for end, call in sorted(found.items()))
        yield f"it ends in several ways: {ends}"
    sizes = {call.asked["payload"]: call.asked["size"] for call in ledger.appends}
    for (last, length), end in found.items():
        lost = [call for call in ledger.appends if call.is_ok and call.answer["entry"] > last]
        yield from (
            f"{call}: the acknowledged entry {call.answer['entry']} is lost by {end}, which ends at {last}"
            for call in lost
        )
        for read in ledger.reads:
            if read.answer.get("lac", -1) > last:
                yield f"{read}: the last add confirmed is {read.answer['lac']}, and {end} ends at {last}"
        texts = [content.get(entry_id) for entry_id in range(last + 1)]
        if all(text in sizes for text in texts):
            size = sum(sizes[text] for text in texts if text is not None)
            if size != length:
                yield f"{end}: the length is {length}, and its entries have {size} bytes"
