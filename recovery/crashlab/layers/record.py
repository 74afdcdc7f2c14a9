"""Recording: each workload is run once, undisturbed, before anything is crashed.

A workload that fails by itself, or a store that breaks a promise without any crash, would make every
violation meaningless: both are told at once.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from recovery.crashlab import tape, tree
from recovery.crashlab.layers.task import histories
from recovery.crashlab.outcome import Answered
from recovery.crashlab.playback import Playback
from recovery.crashlab.preload import Orders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from recovery.crashlab.layers.task import Bench
    from recovery.crashlab.oracles import Breach
    from recovery.crashlab.running import Run


@dataclass(frozen=True, slots=True)
class Recorded:
    """One workload, as it went; `breaches` is empty unless something is wrong without any crash."""

    name: str
    run: Run
    uncovered: dict[str, str]
    breaches: list[Breach]


@dataclass(frozen=True)
class RecordTask:
    """All workloads, their tapes kept below a directory."""

    place: Path

    def work(self, bench: Bench) -> Iterator[Recorded]:
        for name, program in bench.spec.workloads.items():
            root = bench.runner.root()
            try:
                run = bench.runner.record(program, root, Orders())
                playback = Playback(bench.spec.profile, bench.ignored)
                playback.play_all(run.events)
                unseen = tree.differences(playback.platter, root, bench.ignored)
                left = tree.read_tree(root, bench.ignored)
            finally:
                shutil.rmtree(root, ignore_errors=True)
            (self.place / f"{name}.tape").write_bytes(tape.encode_all(run.events))
            breaches: list[Breach] = []
            if isinstance(run.outcome, Answered):
                lay_out = partial(tree.write_tree, left)
                breaches = bench.judge.breaches_of(tree.digest(left), lay_out, run.history)
            yield Recorded(name, run, unseen | playback.uncovered | _unseen_marks(run), breaches)


def _unseen_marks(run: Run) -> dict[str, str]:
    """Marks that took another way than write(): they have no place among the calls."""
    on_tape = histories(run.events, ())[len(run.events)]
    if on_tape.ops == run.history.ops:
        return {}
    return {"marks": "the recorder has not seen all of them; each must be a write() of its own"}
