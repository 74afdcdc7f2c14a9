"""What the laboratory runs: functions of Python, and commands in any language."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from recovery.crashlab.history import MARKS, Ctx, from_json
from recovery.crashlab.outcome import Answered, Refused

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Command:
    """A program of its own; `{root}` in an argument becomes the directory.

    As a workload it writes its marks to the descriptor that the variable CRASHLAB_MARKS names. As a recover
    function it prints a JSON list of entries, each `[key part, …, value]`, and ends with 0; with any other
    exit code it has refused, and says why in the last line of its standard error.
    """

    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    def __init__(
        self, arguments: list[str] | tuple[str, ...], environment: dict[str, str] | None = None
    ) -> None:
        object.__setattr__(self, "arguments", tuple(arguments))
        object.__setattr__(self, "environment", tuple((environment or {}).items()))

    @property
    def name(self) -> str:
        return Path(self.arguments[0]).name

    def become(self, root: Path, marks: int, output: int, errors: int) -> NoReturn:
        """Replaces this process."""
        os.dup2(output, 1)
        os.dup2(errors, 2)
        if marks >= 0:
            os.set_inheritable(marks, True)  # noqa: FBT003 - the system's own words
        words = [word.replace("{root}", str(root)) for word in self.arguments]
        os.execvpe(words[0], words, {**os.environ, **dict(self.environment), MARKS: str(marks)})

    def outcome(self, code: int, output: bytes, errors: bytes) -> Answered | Refused:
        """What its end means."""
        lines = errors.decode(errors="replace").strip().splitlines()
        if code:
            return Refused((), lines[-1] if lines else "", code)
        if not output.strip():
            return Answered(None)
        try:
            entries = [from_json(entry) for entry in json.loads(output)]
            return Answered({entry[:-1]: entry[-1] for entry in entries})  # type: ignore[index]
        except (ValueError, TypeError, KeyError) as error:
            return Refused((), f"{self.name} printed no JSON list of entries: {error}")


Program = Function | Command


def name_of(program: Program) -> str:
    """How a program is called in reports."""
    if isinstance(program, Command):
        return program.name
    return str(getattr(program, "__name__", None) or type(program).__name__)


def call(program: Function, root: Path, ctx: Ctx | None) -> object:
    """The function over that root; a workload is given the context too."""
    return program(root) if ctx is None else program(root, ctx)
