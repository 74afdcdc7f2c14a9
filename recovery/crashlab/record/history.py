"""What a workload asked of a store and what the store acknowledged, as marks on the tape.

A mark is one line of JSON on the marks descriptor, so that programs in any language can write marks:

    ["invoke", 7, "add", 1, 12, "payload"]     from here on its effect may show after a crash
    ["ack", 7]                                 from here on its effect must show

Bytes are written as {"hex": "…"}. The workload chooses the number and uses each once.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Value: TypeAlias = "str | int | float | bytes | bool | tuple[Value, ...] | None"

MARKS = "CRASHLAB_MARKS"
"""The environment variable with the number of the descriptor to which a program writes its marks."""

NEVER = 1 << 62


class Ctx:
    """Writes the marks of a workload. Threads may share it. A mark is in the kernel when the call returns."""

    def __init__(self, marks: int) -> None:
        self._marks = marks
        self._tokens = count(1)

    @classmethod
    def from_environment(cls) -> Ctx:
        """Return the context of a program that the laboratory has started."""
        return cls(int(os.environ[MARKS]))

    def invoke(self, kind: str, *args: Value) -> int:
        """Mark that an operation is about to begin; from here on its effect may show."""
        token = next(self._tokens)
        self._write(["invoke", token, kind, *map(to_json, args)])
        return token

    def ack(self, token: int) -> None:
        """Mark that an operation was acknowledged; from here on its effect must show."""
        self._write(["ack", token])

    @contextmanager
    def doing(self, kind: str, *args: Value) -> Iterator[None]:
        """Mark the operation in the block; it is acknowledged if the block ends without an exception."""
        token = self.invoke(kind, *args)
        yield
        self.ack(token)

    def _write(self, line: list[Any]) -> None:
        os.write(self._marks, json.dumps(line, separators=(",", ":")).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Op:
    """An operation of a workload. `invoked` and `acked` are positions among all marks, or `NEVER`."""

    kind: str
    args: tuple[Value, ...]
    invoked: int
    acked: int = NEVER

    @property
    def is_acked(self) -> bool:
        return self.acked != NEVER

    def __str__(self) -> str:
        words = " ".join(map(short_text, self.args))
        return f"{self.kind} {words}" + ("" if self.is_acked else " (not acknowledged)")


@dataclass(frozen=True, eq=False)
class History:
    """All operations up to a moment, in order. Two histories are equal only if they are one object."""

    ops: tuple[Op, ...] = ()

    def of(self, *kinds: str) -> Iterator[Op]:
        """Return the operations of these kinds."""
        return (op for op in self.ops if op.kind in kinds)

    def acked(self, *kinds: str) -> Iterator[Op]:
        """Return the acknowledged operations of these kinds."""
        return (op for op in self.of(*kinds) if op.is_acked)

    def then(self, later: History) -> History:
        """Return this history followed by a later one of the same store, after a recovery."""
        shift = 2 * len(self.ops)
        moved = (
            Op(op.kind, op.args, op.invoked + shift, op.acked + shift if op.is_acked else NEVER)
            for op in later.ops
        )
        return History((*self.ops, *moved))


@dataclass(slots=True)
class HistoryBuilder:
    """Builds a history from marks; it can be asked for at any time."""

    _ops: dict[int, Op] = field(default_factory=dict)
    _moments: int = 0

    def take(self, lines: bytes) -> None:
        """Take the bytes of one write to the marks descriptor, mostly one line."""
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


def to_json(value: Value) -> Any:
    """Return the value as JSON represents it."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"hex": bytes(value).hex()}
    if isinstance(value, tuple | list):
        return [*map(to_json, value)]
    return value


def from_json(value: Any) -> Value:
    """Return the value that this JSON represents; lists become tuples."""
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    if isinstance(value, list):
        return tuple(map(from_json, value))
    return value  # type: ignore[no-any-return]


def short_text(value: object, size_max: int = 24) -> str:
    """Return a value as text for people; a long one is cut, and its size is added."""
    text = repr(value)
    size = f"… ({len(value)})" if isinstance(value, str | bytes) else "…"
    return text if len(text) <= size_max else text[:size_max] + size
