"""What the laboratory was given: whose workloads, how to recover, what must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

from recovery.crashlab import oracles
from recovery.crashlab.oracles import (
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
from recovery.crashlab.playback import Ignored
from recovery.crashlab.programs import Command, Program, name_of
from recovery.crashlab.shown import as_shown

if TYPE_CHECKING:
    from recovery.crashlab.history import History
    from recovery.crashlab.profile import Profile

Fields = Callable[[str, bytes], Iterable[tuple[str, int, int]]]
"""Where the fields of a file lie: its kind and its bytes give names, offsets and sizes."""

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
    asked: tuple[Any, ...]
    """Oracles, checks and rules."""
    profile: Profile
    seed: int
    ignore: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    fields: Fields | None = None

    @property
    def ignored(self) -> Ignored:
        return Ignored(self.ignore)

    def rule(self, kind: type[_Rule]) -> _Rule | None:
        """The rule of that class, if there is one."""
        return next((one for one in self.asked if isinstance(one, kind)), None)

    @property
    def patience_s(self) -> float:
        return (self.rule(NoHang) or NoHang()).seconds

    def kind_of(self, path: str) -> str:
        """What kind of file that is: by the patterns given, else by the end of its name."""
        last = path.rpartition("/")[2]
        for pattern, kind in self.kinds.items():
            if fnmatchcase(path, pattern) or fnmatchcase(last, pattern):
                return kind
        return last.rpartition(".")[2]

    def breaches(self, history: History, answer: object) -> list[Breach]:
        """Everything that is wrong with an answer behind this history."""
        shown = as_shown(answer)
        found: list[Breach] = []
        for one in self.asked:
            if isinstance(one, Checked):
                found += one.breaches_of(history, answer)
            elif not isinstance(one, _RULES) and (
                self.profile.keeps_promises or isinstance(one, oracles.NoFabrication)
            ):
                found += one.breaches(history, shown)
        return found


def specify(
    workload: Program | Mapping[str, Program],
    recover: Program,
    check: object,
    profile: Profile,
    seed: int,
    name: str,
    **more: Any,
) -> Spec:
    """A specification from what a user writes."""
    workloads = dict(workload) if isinstance(workload, Mapping) else {name_of(workload): workload}
    if not workloads:
        raise ValueError("no workload: there is nothing to crash")
    for program in (*workloads.values(), recover):
        if not (isinstance(program, Command) or callable(program)):
            raise TypeError(f"{program!r} is neither a function nor a Command")
    return Spec(name, workloads, recover, _asked(check), profile, seed, **more)


def _asked(check: object) -> tuple[Any, ...]:
    given = [check] if callable(check) or not isinstance(check, Sequence) else list(check)
    asked = [_as_oracle(one) for one in given if one is not None]
    # Rules alone ask nothing of what is shown.
    return tuple(asked) if any(not isinstance(one, _RULES) for one in asked) else (*oracles.DEFAULT, *asked)


def _as_oracle(one: object) -> object:
    if isinstance(one, _RULES) or hasattr(one, "breaches"):
        return one
    if callable(one):
        return Checked(one)
    raise TypeError(f"{one!r} is neither an oracle nor a check")
