"""Marks become a history, complete and in order, in whatever language they were written."""

from __future__ import annotations

import os
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from recorded import history_of

from recovery.crashlab.record.history import (
    MARKS,
    NEVER,
    Ctx,
    History,
    HistoryBuilder,
    Op,
    from_json,
    short_text,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab.record.history import Value


class Marks:
    """A descriptor for marks, as the laboratory has one."""

    def __init__(self) -> None:
        self.memory = os.memfd_create("marks")
        self.fd = os.open(f"/proc/self/fd/{self.memory}", os.O_WRONLY | os.O_APPEND)
        self.ctx = Ctx(self.fd)

    def lines(self) -> list[bytes]:
        return os.pread(self.memory, 1 << 20, 0).splitlines()

    def history(self) -> History:
        return history_of(self.lines())


@pytest.fixture
def marks() -> Iterator[Marks]:
    made = Marks()
    yield made
    os.close(made.fd)
    os.close(made.memory)


@pytest.mark.parametrize(
    "value", ["text", "ünïcode\n", 7, -1, 1.5, True, None, b"", b"\0\xff", (1, (b"x", ("y",))), ()]
)
def test_a_value_comes_back_as_it_was(marks: Marks, value: Value) -> None:
    marks.ctx.invoke("add", "key", value)

    (op,) = marks.history().ops
    assert op.args == ("key", value)
    assert from_json(to_json(value)) == value


def test_memoryviews_and_lists_become_hashable_values(marks: Marks) -> None:
    marks.ctx.invoke("add", bytearray(b"a"), memoryview(b"b"), [1, [2]])  # type: ignore[arg-type]

    assert marks.history().ops[0].args == (b"a", b"b", (1, (2,)))


def test_moments_are_places_among_all_marks(marks: Marks) -> None:
    first, second = marks.ctx.invoke("add", 1), marks.ctx.invoke("add", 2)
    marks.ctx.ack(second)
    marks.ctx.ack(first)
    marks.ctx.invoke("add", 3)

    assert [(op.args, op.invoked, op.acked) for op in marks.history().ops] == [
        ((1,), 0, 3),
        ((2,), 1, 2),
        ((3,), 4, NEVER),
    ]


def test_a_block_is_acknowledged_if_it_ends_without_an_exception(marks: Marks) -> None:
    with marks.ctx.doing("add", 1):
        assert not marks.history().ops[0].is_acked
    with pytest.raises(OSError, match="full"), marks.ctx.doing("add", 2):
        raise OSError("full")

    assert [op.is_acked for op in marks.history().ops] == [True, False]


def test_a_mark_is_one_line_in_the_kernel_when_it_returns(marks: Marks) -> None:
    token = marks.ctx.invoke("add", "line\nbreak", b"x")

    assert marks.lines() == [b'["invoke",%d,"add","line\\nbreak",{"hex":"78"}]' % token]


def test_threads_share_a_context(marks: Marks) -> None:
    def work(number: int) -> None:
        for at in range(100):
            marks.ctx.ack(marks.ctx.invoke("add", number, at))

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    ops = marks.history().ops
    assert len({op.args for op in ops}) == 400
    assert all(op.invoked < op.acked < NEVER for op in ops)


def test_a_program_of_its_own_finds_its_descriptor(marks: Marks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARKS, str(marks.fd))

    Ctx.from_environment().invoke("begin")

    assert [op.kind for op in marks.history().ops] == ["begin"]


def test_several_lines_in_one_write_are_as_many_marks() -> None:
    register = HistoryBuilder()
    register.take(b'["invoke",1,"a"]\n["invoke",2,"b"]\n["ack",1]\n')
    register.take(b'["ack",2]\n')

    assert [(op.kind, op.acked) for op in register.history().ops] == [("a", 2), ("b", 3)]


@pytest.mark.parametrize(
    "line",
    [b"no json", b'["invoke"]', b'["ack",1]', b'["invoke","1","add"]', b"{}", b'["invoke",1,"a"]\n' * 2],
)  # fmt: skip
def test_an_invalid_mark_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"no mark|Expecting|Extra"):
        history_of([line])


def test_a_history_stays_as_it_was_asked_for() -> None:
    register = HistoryBuilder()
    register.take(b'["invoke",1,"a"]')
    before = register.history()
    register.take(b'["ack",1]')

    assert not before.ops[0].is_acked
    assert register.history().ops[0].is_acked


def test_operations_after_a_recovery_follow_all_earlier_ones() -> None:
    before = History((Op("add", (1,), 0, 3), Op("add", (2,), 1)))
    later = History((Op("add", (3,), 0, 1), Op("add", (4,), 2)))

    both = before.then(later).ops

    assert both[:2] == before.ops
    assert both[2].invoked > before.ops[0].acked
    assert [(op.acked - op.invoked, op.is_acked) for op in both[2:]] == [
        (1, True),
        (NEVER - both[3].invoked, False),
    ]
    assert both[3].invoked > both[2].acked


def test_operations_are_selected_by_their_kind() -> None:
    add, other, fence = Op("add", (1,), 0, 1), Op("add", (2,), 2), Op("fence", (1,), 3, 4)
    history = History((add, other, fence))

    assert [*history.of("add", "fence")] == [add, other, fence]
    assert [*history.acked("add")] == [add]
    assert history != History(history.ops)


def test_a_long_value_is_shown_by_its_beginning_and_its_size() -> None:
    assert short_text(b"short") == "b'short'"
    assert short_text("x" * 100) == "'" + "x" * 23 + "… (100)"
    assert str(Op("add", (1, b"x"), 0)) == "add 1 b'x' (not acknowledged)"
