"""The cut layer: real file systems, shut down at a call of the running store and mounted again.

The recorder does the cut while it holds the lock under which marks are written, so that nothing can be
acknowledged once the cut has begun.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from typing import TYPE_CHECKING

from recovery.crashlab.judge.occurrence import Occurrence
from recovery.crashlab.model import real_tree
from recovery.crashlab.record.preload import Action, Orders
from recovery.crashlab.record.tape import Call
from recovery.crashlab.run.image_checker import CrashImage
from recovery.crashlab.run.task import CountsReport, NotCovered, batches, shuffled
from recovery.crashlab.run.volume import KINDS, Volume
from recovery.crashlab.run.volume import why_not as why_no_volume

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab.judge.oracles import Breach
    from recovery.crashlab.record.recording import Recording
    from recovery.crashlab.record.tape import Event
    from recovery.crashlab.run.task import Message, WorkerContext, WorkShare

CUTS = 40
"""For each file system, without a budget."""


@cache
def why_not(kind: str) -> str:
    """Return why this file system cannot be cut here. Cached, because the answer needs a trial cut."""
    return why_no_volume(kind)


def why_none() -> str:
    """Return why no file system can be cut here; "" if one can."""
    reasons = {kind: why_not(kind) for kind in KINDS}
    return "; ".join(f"{kind}: {why}" for kind, why in reasons.items()) if all(reasons.values()) else ""


@dataclass(frozen=True)
class CutTask:
    """Cuts at calls of all workloads, on each file system in turn."""

    recordings: tuple[Recording, ...]
    share: WorkShare

    def work(self, context: WorkerContext) -> Iterator[Message]:
        kinds = [kind for kind in KINDS if not why_not(kind)]
        for kind in set(KINDS) - set(kinds):
            yield NotCovered(f"{kind}: {why_not(kind)}")
        calls = [
            (recording, event)
            for recording in self.recordings
            for event in recording.events()
            if event.call is not Call.MARK
        ]
        # Each worker has its own file system; if it uses several kinds, one after the other.
        for turn in count() if self.share.until is not None else range(len(kinds)):
            kind = kinds[(turn + self.share.index) % len(kinds)]
            if self.share.is_over:
                return
            drawn = shuffled(calls, context.spec.seed, "cut", kind, turn)
            with Volume(kind) as volume:
                mine = self.share.mine(drawn[: CUTS * self.share.of])
                for group in batches(mine):
                    cases = [_cut(context, volume, kind, recording, event) for recording, event in group]
                    yield CountsReport({"real cuts": len(cases), f"cuts on {kind}": len(cases)})
                    yield from context.checker.check(cases)


def _cut(context: WorkerContext, volume: Volume, kind: str, recording: Recording, event: Event) -> CrashImage:
    root = volume.fresh()
    orders = Orders(event.number, Action.CUT)
    died = context.runner.record(context.spec.workloads[recording.name], root, orders)
    volume.crash_and_remount()
    left = real_tree.read_tree(root, context.ignored)

    def occurrence(breach: Breach) -> Occurrence:
        how = f"a real power cut on {kind}"
        return Occurrence(
            "cut", recording.name, event.number, f"before {event}", breach, how, left, died.history
        )

    return CrashImage(real_tree.digest(left), partial(real_tree.write_tree, left), died.history, occurrence)
