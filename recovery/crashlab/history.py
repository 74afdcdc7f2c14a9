"""What a workload asked of a store and what the store answered, as marks on the tape.

A mark is one line of JSON on the marks descriptor, so that a program in any language can make them:

    ["invoke", 7, "add", 1, 12, "payload"]     from here on it may show after a crash
    ["ack", 7]                                 from here on it must

Bytes stand as {"hex": "…"}. The number is the workload's own, each once.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Value: TypeAlias = "str | int | float | bytes | bool | tuple[Value, ...] | None"

MARKS = "CRASHLAB_MARKS"
"""The environment variable that tells a program which descriptor takes its marks."""

NEVER = 1 << 62


class Ctx:
    """What a workload tells the laboratory. Threads may share it; a line is in the kernel when it returns."""

    def __init__(self, marks: int) -> None:
        self._marks = marks
        self._tokens = count(1)

    @classmethod
    def from_environment(cls) -> Ctx:
        """For a program of its own that the laboratory has started."""
        return cls(int(os.environ[MARKS]))

    def invoke(self, kind: str, *args: Value) -> int:
        """Says that something is about to be asked; from here on it may show."""
        token = next(self._tokens)
        self._write(["invoke", token, kind, *map(to_json, args)])
        return token

    def ack(self, token: int) -> None:
        """Says that it was answered; from here on it must show."""
        self._write(["ack", token])

    @contextmanager
    def doing(self, kind: str, *args: Value) -> Iterator[None]:
        """Around what is asked: acknowledged where the block ends without an exception."""
        token = self.invoke(kind, *args)
        yield
        self.ack(token)

    def _write(self, line: list[Any]) -> None:
        os.write(self._marks, json.dumps(line, separators=(",", ":")).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Op:
    """Something that was asked. The moments are places among all marks; one never answered is `NEVER`."""

    kind: str
    args: tuple[Value, ...]
    invoked: int
    acked: int = NEVER

    @property
    def is_acked(self) -> bool:
        return self.acked != NEVER

    def __str__(self) -> str:
        words = " ".join(map(shortly, self.args))
        return f"{self.kind} {words}" + ("" if self.is_acked else " (not acknowledged)")


@dataclass(frozen=True, eq=False)
class History:
    """Everything that was asked up to a moment, in that order. Two are the same when they are one."""

    ops: tuple[Op, ...] = ()

    def of(self, *kinds: str) -> Iterator[Op]:
        """The operations of these kinds."""
        return (op for op in self.ops if op.kind in kinds)

    def acked(self, *kinds: str) -> Iterator[Op]:
        """Those of them that were acknowledged."""
        return (op for op in self.of(*kinds) if op.is_acked)

    def then(self, later: History) -> History:
        """This one, and behind it another: of the same store, after a recovery."""
        shift = 2 * len(self.ops)
        moved = (
            Op(op.kind, op.args, op.invoked + shift, op.acked + shift if op.is_acked else NEVER)
            for op in later.ops
        )
        return History((*self.ops, *moved))


@dataclass(slots=True)
class Register:
    """Takes marks as they come; its history may be asked for at any time."""

    _ops: dict[int, Op] = field(default_factory=dict)
    _moments: int = 0

    def take(self, lines: bytes) -> None:
        """One write to the marks descriptor: one line, mostly."""
        for line in lines.splitlines():
            self._take(json.loads(line))
            self._moments += 1

    def _take(self, mark: list[Any]) -> None:
        match mark:
            case ["invoke", int(token), str(kind), *args] if token not in self._ops:
                self._ops[token] = Op(kind, tuple(map(from_json, args)), self._moments)
            case ["ack", int(token)] if token in self._ops:
                op = self._ops[token]
                self._ops[token] = Op(op.kind, op.args, op.invoked, self._moments)
            case _:
                raise ValueError(f"no mark: {json.dumps(mark)[:200]}")

    def history(self) -> History:
        return History(tuple(self._ops.values()))


def history_of(lines: Iterable[bytes]) -> History:
    """The history that these lines tell."""
    register = Register()
    for line in lines:
        register.take(line)
    return register.history()


def to_json(value: Value) -> Any:
    """The value as JSON has it."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"hex": bytes(value).hex()}
    if isinstance(value, tuple | list):
        return [*map(to_json, value)]
    return value


def from_json(value: Any) -> Value:
    """The value back; lists are tuples."""
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    if isinstance(value, list):
        return tuple(map(from_json, value))
    return value  # type: ignore[no-any-return]


def shortly(value: object, size_max: int = 24) -> str:
    """A value for people: long ones by their beginning and their size."""
    text = repr(value)
    size = f"… ({len(value)})" if isinstance(value, str | bytes) else "…"
    return text if len(text) <= size_max else text[:size_max] + size
