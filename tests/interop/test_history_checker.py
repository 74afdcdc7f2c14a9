"""Right histories pass, and each wrong one is found. The wrong ones are small edits of a right one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from history import History, decode
from history_checker import check

if TYPE_CHECKING:
    from collections.abc import Callable

    from history import Event

Lines = list[dict[str, Any]]


def _history() -> History:
    """A writer is fenced with one append under way, which survives; two readers, and a second take-over."""
    history = History()
    op = history.invoke("ours", "create")
    history.ok(op, ledger=4)
    for number in range(3):
        op = history.invoke("ours", "append", ledger=4, payload=f"p{number}", size=2)
        history.ok(op, entry=number)
    for lac in (0, 1):
        op = history.invoke("java", "read", ledger=4, reader="tail", first=0)
        history.ok(op, entries=[[one, f"p{one}"] for one in range(lac + 1)], lac=lac)
    under_way = history.invoke("ours", "append", ledger=4, payload="p3", size=2)
    lost = history.invoke("ours", "append", ledger=4, payload="p4", size=2)
    op = history.invoke("java", "take_over", ledger=4)
    history.ok(op, last=3, length=8)
    history.unknown(under_way, "fenced")
    history.unknown(lost, "fenced")
    late = history.invoke("ours", "append", ledger=4, payload="late", size=4)
    history.fail(late, "fenced")
    for client in ("java", "ours"):
        op = history.invoke(client, "read", ledger=4, reader="end", first=0)
        entries = [[number, f"p{number}"] for number in range(4)]
        history.ok(op, entries=entries, lac=3, last=3, length=8)
    op = history.invoke("ours", "close", ledger=4)
    history.fail(op, "fenced")
    return history


def _changed(edit: Callable[[Lines], object]) -> list[Event]:
    lines = [json.loads(line) for line in _history().lines().splitlines()]
    edit(lines)
    return list(decode(map(json.dumps, lines)))


def _line(lines: Lines, event: str, **fields: object) -> dict[str, Any]:
    """Return the first line with these fields."""
    return next(line for line in lines if line["event"] == event and fields.items() <= line.items())


def _ok_of(lines: Lines, **asked: object) -> dict[str, Any]:
    return _line(lines, "ok", op=_line(lines, "invoke", **asked)["op"])


def test_a_right_history_has_no_problem_and_is_counted() -> None:
    verdict = check(_history().events)
    assert verdict.problems == []
    assert (verdict.ledgers, verdict.calls, verdict.acknowledged, verdict.unknown) == (1, 13, 3, 2)


def test_an_append_of_unknown_outcome_may_be_missing() -> None:
    def edit(lines: Lines) -> None:
        for line in lines:
            if line.get("last") == 3:
                line |= {"last": 2, "length": 6}
            if line.get("lac") == 3:
                line |= {"lac": 2, "entries": line["entries"][:3]}

    assert check(_changed(edit)).problems == []


END = {"client": "java", "reader": "end"}
WRONG: dict[str, tuple[Callable[[Lines], object], str]] = {
    "a call does not end": (
        lambda lines: lines.remove(_ok_of(lines, call="take_over")),
        "take_over 9 of java has not ended",
    ),
    "a call ends twice": (
        lambda lines: lines.append(_ok_of(lines, call="create")),
        "create 1 of ours ends twice",
    ),
    "an acknowledged entry is after the end": (
        lambda lines: _ok_of(lines, call="take_over").update(last=1, length=4),
        "the acknowledged entry 2 is lost by take_over 9 of java, which ends at 1",
    ),
    "an acknowledged entry is not read": (
        lambda lines: _ok_of(lines, **END)["entries"].pop(1),
        "missing, or too many: [1]",
    ),
    "an entry has changed": (
        lambda lines: _ok_of(lines, **END).update(entries=[[0, "p0"], [1, "p1"], [2, "p4"], [3, "p3"]]),
        "entry 2 is 'p4', and elsewhere 'p2'",
    ),
    "an entry comes from nowhere": (
        lambda lines: _ok_of(lines, **END).update(entries=[[0, "p0"], [1, "p1"], [2, "p2"], [3, "other"]]),
        "'other', which was not written",
    ),
    "what has failed is read": (
        lambda lines: _ok_of(lines, **END).update(entries=[[0, "p0"], [1, "p1"], [2, "p2"], [3, "late"]]),
        "append 10 of ours has failed",
    ),
    "ids are not in the order of the appends": (
        lambda lines: (
            _ok_of(lines, call="append", payload="p1").update(entry=2),
            _ok_of(lines, call="append", payload="p2").update(entry=1),
        ),
        "which began before, a later one",
    ),
    "acknowledged ids have a gap": (
        lambda lines: _ok_of(lines, call="append", payload="p2").update(entry=3),
        "entry 3 is acknowledged, and [2] are not",
    ),
    "an unknown entry overtakes another": (
        lambda lines: [
            line.update(
                entries=[[0, "p0"], [1, "p1"], [2, "p2"], [3, "p4"], [4, "p3"]], lac=4, last=4, length=10
            )
            for line in lines
            if "entries" in line and line["lac"] == 3
        ],
        "append 7 of ours has a later entry than append 8 of ours",
    ),
    "a reader sees more than is confirmed": (
        lambda lines: _ok_of(lines, reader="tail").update(lac=-1),
        "1 entries, and the last confirmed is -1",
    ),
    "a reader does not see all of a closed ledger": (
        lambda lines: _ok_of(lines, **END).update(lac=2, entries=[[one, f"p{one}"] for one in range(3)]),
        "the last confirmed is 2, and the ledger ends at 3",
    ),
    "a last add confirmed goes back": (
        lambda lines: _line(lines, "ok", lac=1).update(lac=-1, entries=[]),
        "goes back from 0 to -1",
    ),
    "a last add confirmed is after the end": (
        lambda lines: [line.update(last=1, length=4) for line in lines if "last" in line],
        "the last add confirmed is 3, and",
    ),
    "two readers see another length": (
        lambda lines: _ok_of(lines, **END).update(length=9),
        "it ends in several ways: (3, 8) by read 12 of ours, (3, 9) by read 11 of java",
    ),
    "all see a wrong length": (
        lambda lines: [line.update(length=7) for line in lines if "length" in line],
        "the length is 7, and its entries have 8 bytes",
    ),
    "a fenced writer adds": (
        lambda lines: _line(lines, "fail", op=10).update(event="ok", entry=4),
        "append 10 of ours began after take_over 9 of java had ended, and is acknowledged",
    ),
    "a ledger has two writers": (
        lambda lines: _line(lines, "invoke", payload="p4").update(client="java"),
        "it has the writers java, ours",
    ),
    "two creates return the same ledger": (
        lambda lines: lines.extend(
            [
                {"event": "invoke", "op": 99, "client": "java", "call": "create"},
                {"event": "ok", "op": 99, "ledger": 4},
            ]
        ),
        "ledger 4 was created twice",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_history_is_found(name: str) -> None:
    edit, expected = WRONG[name]
    problems = check(_changed(edit)).problems
    assert [problem for problem in problems if expected in problem], problems
