"""Kills a program at every call, and its recovery, and the recovery of that; asks each time what is left."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kill_server import memory_place
from syscalls import every_kill

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from kill_server import Json, KillServer, Outcome, Program
    from syscalls import Call, Kill, When


@dataclass(frozen=True)
class Trial:
    """Who is killed, and how to tell that it went wrong.

    `recover` returns what a reader would be shown, the same each time. `contradiction` says why that cannot
    be, after those acknowledgements; nothing when it can. `go_on` works on behind a recovery.
    """

    workload: Program
    recover: Program
    contradiction: Callable[[Sequence[str], Json], str]
    go_on: Program
    arguments: tuple[Json, ...] = ()
    holders: frozenset[str] = frozenset({"lock", "LOCK", "lock.mdb"})
    """Files that name their process: roots that differ in nothing else are the same."""


@dataclass(frozen=True)
class Aftermath:
    """What came out of one killed root: what recovery showed, and what it shows after work went on."""

    shown: Json = None
    later: Json = None
    acks: tuple[str, ...] = ()
    problem: str = ""

    def violation(self, trial: Trial, acks: tuple[str, ...]) -> str:
        if self.problem:
            return self.problem
        if why := trial.contradiction(acks, self.shown):
            return why
        why = trial.contradiction(acks + self.acks, self.later)
        return f"after going on: {why}" if why else ""


class KillWalk:
    """A walk over the kills of one trial: of its workload, of the recovery behind that, and so on.

    At level n (0 is the workload) every `strides[n]`-th kill is made: `(1,)` kills the workload everywhere,
    `(1, 1, 7)` its recoveries everywhere too, and a seventh of the recoveries behind those. Roots that are
    equal are recovered once, and held against every kill that left them. For one thread.
    """

    def __init__(self, server: KillServer, trial: Trial, strides: Sequence[int] = (1,)) -> None:
        self._server = server
        self._trial = trial
        self._strides = strides
        self._steps = [count() for _ in strides]
        self._aftermaths: dict[str, Aftermath] = {}
        self._walked_from: dict[str, int] = {}  # the least level at which the kills of a root were walked
        self._numbers = count()
        self._place = tempfile.TemporaryDirectory(prefix="killed-", dir=memory_place())
        self.kills: Counter[tuple[int, When]] = Counter()
        """How many, per level and moment."""
        self.strayed: list[str] = []
        """Kills that hit another call than they were meant for: what makes other calls each time has some."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._place.cleanup()

    @property
    def roots(self) -> int:
        """Different roots that kills have left."""
        return len(self._aftermaths)

    def calls(self) -> tuple[Call, ...]:
        """What the workload does when nobody kills it."""
        with self._root() as root:
            return self._run(self._trial.workload, root).checked().calls

    def violations(self) -> Iterator[str]:
        """One line for each kill that the trial did not stand."""
        for call, kill in self._kills_of(self.calls(), 0):
            with self._root() as root:
                label, acks = self._kill(self._trial.workload, root, call, kill, 0)
                yield from self._look(root, acks, label, 0)

    def _kills_of(self, calls: Sequence[Call], level: int) -> Iterator[tuple[Call, Kill]]:
        for kill in every_kill(calls):
            if next(self._steps[level]) % self._strides[level] == 0:
                yield calls[kill.number - 1], kill

    def _look(
        self, root: Path, acks: tuple[str, ...], label: str, level: int
    ) -> Generator[str, None, Aftermath]:
        image = _image(root, self._trial.holders)
        if image not in self._aftermaths:
            self._aftermaths[image] = self._aftermath(root)
        aftermath = self._aftermaths[image]
        deepest = len(self._strides) - 1
        if why := aftermath.violation(self._trial, acks):
            yield f"{label} · {why}"
        elif level < min(deepest, self._walked_from.get(image, deepest)):
            self._walked_from[image] = level
            yield from self._walk_recovery(root, acks, label, level + 1)
        return aftermath

    def _walk_recovery(self, root: Path, acks: tuple[str, ...], label: str, level: int) -> Iterator[str]:
        with self._root(root) as copy:
            whole = self._run(self._trial.recover, copy).checked()
        for call, kill in self._kills_of(whole.calls, level):
            with self._root(root) as copy:
                inner, more = self._kill(self._trial.recover, copy, call, kill, level)
                inner = f"{label} · {inner}"
                aftermath = yield from self._look(copy, acks + more, inner, level)
                if not aftermath.problem and aftermath.shown != whole.shown:
                    yield f"{inner} · shows {aftermath.shown}, and {whole.shown} without that kill"

    def _aftermath(self, root: Path) -> Aftermath:
        with self._root(root) as copy:
            programs = (self._trial.recover, self._trial.recover, self._trial.go_on, self._trial.recover)
            outcomes = []
            for program in programs:
                outcomes.append(self._run(program, copy))
                if outcomes[-1].status:
                    return Aftermath(problem=f"{program.__name__}: {_refusal(outcomes[-1])}")
            once, twice, more, later = outcomes
            problem = "" if once.shown == twice.shown else f"shows {once.shown}, and then {twice.shown}"
            return Aftermath(once.shown, later.shown, once.acks + more.acks, problem)

    def _kill(
        self, program: Program, root: Path, call: Call, kill: Kill, level: int
    ) -> tuple[str, tuple[str, ...]]:
        label = f"{program.__name__} {kill.when} {call}"
        died = self._run(program, root, kill)
        if not died.was_killed:
            died.checked()
        if died.calls != (call,):
            self.strayed.append(label)
        self.kills[level, kill.when] += 1
        return label, died.acks

    def _run(self, program: Program, root: Path, kill: Kill | None = None) -> Outcome:
        return self._server.run(program, root, *self._trial.arguments, kill=kill)

    @contextmanager
    def _root(self, like: Path | None = None) -> Iterator[Path]:
        root = Path(self._place.name) / str(next(self._numbers))
        if like:
            shutil.copytree(like, root)
        else:
            root.mkdir()
        yield root
        shutil.rmtree(root)


def _refusal(outcome: Outcome) -> str:
    last_words = outcome.error.strip().rpartition("\n")[2]
    return last_words or f"ended with {signal.Signals(-outcome.status).name}"


def _image(root: Path, holders: frozenset[str]) -> str:
    """A digest of all names and bytes below the root."""
    digest = hashlib.sha256()
    for directory, directories, files in os.walk(root):
        directories.sort()
        for name in sorted(files):
            path = Path(directory) / name
            content = b"" if name in holders else path.read_bytes()
            digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode() + content)
        digest.update(f"{Path(directory).relative_to(root)}/\0".encode())
    return digest.hexdigest()
