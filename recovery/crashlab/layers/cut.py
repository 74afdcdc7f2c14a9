"""The cut layer: real file systems, shut down under the running store at one of its calls, and mounted again.

The recorder cuts the power itself, holding the lock under which marks are made: nothing can be acknowledged
once the cut has begun.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from typing import TYPE_CHECKING

from recovery.crashlab import tree
from recovery.crashlab.judge import Case
from recovery.crashlab.layers.task import Counted, NotCovered, Sighting, grouped, shuffled
from recovery.crashlab.preload import Action, Orders
from recovery.crashlab.tape import Call
from recovery.crashlab.volume import KINDS, Volume
from recovery.crashlab.volume import why_not as why_no_volume

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab.layers.task import Bench, Message, Recording, Share
    from recovery.crashlab.oracles import Breach
    from recovery.crashlab.tape import Event

CUTS = 40
"""Of each file system, without a budget."""


@cache
def why_not(kind: str) -> str:
    """Why this file system cannot be cut here; asked once, since a cut is made to see."""
    return why_no_volume(kind)


def why_none() -> str:
    """Why nothing can be cut here, on any file system."""
    reasons = {kind: why_not(kind) for kind in KINDS}
    return "; ".join(f"{kind}: {why}" for kind, why in reasons.items()) if all(reasons.values()) else ""


@dataclass(frozen=True)
class CutTask:
    """Cuts at calls of all workloads, the file systems in turns."""

    recordings: tuple[Recording, ...]
    share: Share

    def work(self, bench: Bench) -> Iterator[Message]:
        kinds = [kind for kind in KINDS if not why_not(kind)]
        for kind in set(KINDS) - set(kinds):
            yield NotCovered(f"{kind}: {why_not(kind)}")
        calls = [
            (recording, event)
            for recording in self.recordings
            for event in recording.events()
            if event.call is not Call.MARK
        ]
        # Each worker has a file system of its own; with several, one kind each, else in turns.
        for turn in count() if self.share.until is not None else range(len(kinds)):
            kind = kinds[(turn + self.share.index) % len(kinds)]
            if self.share.is_over:
                return
            drawn = shuffled(calls, bench.spec.seed, "cut", kind, turn)
            with Volume(kind) as volume:
                mine = self.share.mine(drawn[: CUTS * self.share.of])
                for group in grouped(mine):
                    cases = [_cut(bench, volume, kind, recording, event) for recording, event in group]
                    yield Counted({"real cuts": len(cases), f"cuts on {kind}": len(cases)})
                    yield from bench.judge.check(cases)


def _cut(bench: Bench, volume: Volume, kind: str, recording: Recording, event: Event) -> Case:
    root = volume.fresh()
    orders = Orders(event.number, Action.CUT)
    died = bench.runner.record(bench.spec.workloads[recording.name], root, orders)
    volume.crash_and_remount()
    left = tree.read_tree(root, bench.ignored)

    def sighting(breach: Breach) -> Sighting:
        how = f"a real power cut on {kind}"
        return Sighting(
            "cut", recording.name, event.number, f"before {event}", breach, how, left, died.history
        )

    return Case(tree.digest(left), partial(tree.write_tree, left), died.history, sighting)
