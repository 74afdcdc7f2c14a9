"""The input of the laboratory: programs to run, and rules that must hold after a crash."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from recovery.crashlab.judge import oracles
from recovery.crashlab.judge.oracles import (
    Breach,
    Checked,
    ContinueAfterRecovery,
    FsckClean,
    Idempotent,
    LastSyncUnwitnessed,
    NoHang,
    OpenSucceedsOrNamed,
    ReadStays,
)
from recovery.crashlab.judge.outcome import Answered, RecoveryRefused, observed_state_of
from recovery.crashlab.model.real_tree import IgnoredPaths
from recovery.crashlab.record.history import MARKS, Ctx, from_json

if TYPE_CHECKING:
    from recovery.crashlab.model.profile import Profile
    from recovery.crashlab.record.history import History


Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Command:
    """A program that is not a Python function; `{root}` in an argument is replaced by the directory.

    As a workload it writes its marks to the descriptor that the variable CRASHLAB_MARKS names. As a recover
    function it prints a JSON list of entries, each `[key part, …, value]`, and ends with 0. Any other exit
    code means that it refused to open the store; the last line of its standard error says why.
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
        """Replace this process by the program."""
        os.dup2(output, 1)
        os.dup2(errors, 2)
        if marks >= 0:
            os.set_inheritable(marks, True)  # noqa: FBT003 - the system's own words
        words = [word.replace("{root}", str(root)) for word in self.arguments]
        os.execvpe(words[0], words, {**os.environ, **dict(self.environment), MARKS: str(marks)})

    def outcome(self, code: int, output: bytes, errors: bytes) -> Answered | RecoveryRefused:
        """Return the outcome that this exit code and output mean."""
        lines = errors.decode(errors="replace").strip().splitlines()
        if code:
            return RecoveryRefused((), lines[-1] if lines else "", code)
        if not output.strip():
            return Answered(None)
        try:
            entries = [from_json(entry) for entry in json.loads(output)]
            return Answered({entry[:-1]: entry[-1] for entry in entries})  # type: ignore[index]
        except (ValueError, TypeError, KeyError) as error:
            return RecoveryRefused((), f"{self.name} printed no JSON list of entries: {error}")


Program = Function | Command


def name_of(program: Program) -> str:
    """Return the name of a program for reports."""
    if isinstance(program, Command):
        return program.name
    return str(getattr(program, "__name__", None) or type(program).__name__)


def call(program: Function, root: Path, ctx: Ctx | None) -> object:
    """Call the function with the root, and with the context if it is a workload."""
    return program(root) if ctx is None else program(root, ctx)


Fields = Callable[[str, bytes], Iterable[tuple[str, int, int]]]
"""Maps the kind and the bytes of a file to its fields: names, offsets and sizes."""

_RULES = (
    Idempotent,
    ContinueAfterRecovery,
    FsckClean,
    OpenSucceedsOrNamed,
    NoHang,
    ReadStays,
    LastSyncUnwitnessed,
)
_Rule = TypeVar("_Rule")


@dataclass(frozen=True)
class Spec:
    """Everything that a worker process needs to know."""

    name: str
    workloads: Mapping[str, Program]
    recover: Program
    checks: tuple[Any, ...]
    """Oracles, checks and rules."""
    profile: Profile
    seed: int
    ignore: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    fields: Fields | None = None

    @property
    def ignored(self) -> IgnoredPaths:
        return IgnoredPaths(self.ignore)

    def rule(self, kind: type[_Rule]) -> _Rule | None:
        """Return the rule of that class, if there is one."""
        return next((one for one in self.checks if isinstance(one, kind)), None)

    @property
    def timeout_s(self) -> float:
        return (self.rule(NoHang) or NoHang()).seconds

    def kind_of(self, path: str) -> str:
        """Return the kind of a file, by the given patterns, or else its suffix."""
        last = path.rpartition("/")[2]
        for pattern, kind in self.kinds.items():
            if fnmatchcase(path, pattern) or fnmatchcase(last, pattern):
                return kind
        return last.rpartition(".")[2]

    def breaches(self, history: History, answer: object) -> list[Breach]:
        """Return everything that is wrong with an answer after this history."""
        shown = observed_state_of(answer)
        found: list[Breach] = []
        for one in self.checks:
            if isinstance(one, Checked):
                found += one.breaches_of(history, answer)
            elif not isinstance(one, _RULES) and (
                self.profile.keeps_promises or isinstance(one, oracles.NoFabrication)
            ):
                found += one.breaches(history, shown)
        return found


def make_spec(
    workload: Program | Mapping[str, Program],
    recover: Program,
    check: object,
    profile: Profile,
    seed: int,
    name: str,
    **more: Any,
) -> Spec:
    """Return the specification that the arguments of a user mean."""
    workloads = dict(workload) if isinstance(workload, Mapping) else {name_of(workload): workload}
    if not workloads:
        raise ValueError("no workload: there is nothing to crash")
    for program in (*workloads.values(), recover):
        if not (isinstance(program, Command) or callable(program)):
            raise TypeError(f"{program!r} is neither a function nor a Command")
    return Spec(name, workloads, recover, _checks_of(check), profile, seed, **more)


def _checks_of(check: object) -> tuple[Any, ...]:
    given = [check] if callable(check) or not isinstance(check, Sequence) else list(check)
    checks = [_as_oracle(one) for one in given if one is not None]
    # Rules alone check nothing that a store shows, so the default oracles are added.
    return (
        tuple(checks) if any(not isinstance(one, _RULES) for one in checks) else (*oracles.DEFAULT, *checks)
    )


def _as_oracle(one: object) -> object:
    if isinstance(one, _RULES) or hasattr(one, "breaches"):
        return one
    if callable(one):
        return Checked(one)
    raise TypeError(f"{one!r} is neither an oracle nor a check")
