"""The errors layer: every call fails once, in each way that its kind can fail, or goes on failing.

Behind the run the store is recovered as it lies, as after a restart; and as a power cut would leave it, for
a failed sync has called pages clean that were never written.
"""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from recovery.crashlab import tape, tree
from recovery.crashlab.fates import KeepAll, LoseAll, RandomFate, Tearing
from recovery.crashlab.layers.task import Counted, Crash, NotCovered, Sighting, shuffled
from recovery.crashlab.oracles import Breach
from recovery.crashlab.outcome import Died, Hung
from recovery.crashlab.playback import Playback
from recovery.crashlab.preload import Action, Orders
from recovery.crashlab.tape import SYNCS, Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.crashlab.fates import Fate
    from recovery.crashlab.layers.task import Bench, Message, Recording, Share
    from recovery.crashlab.running import Run
    from recovery.crashlab.tape import Event

_GROWING = frozenset({Call.WRITE, Call.ALLOCATE, Call.CREATE, Call.MKDIR, Call.TRUNCATE})
_NAMING = frozenset({Call.CREATE, Call.MKDIR, Call.RENAME, Call.LINK, Call.UNLINK, Call.RMDIR, Call.TRUNCATE})


def faults_of(event: Event) -> Iterator[Orders]:
    """Every way in which that call can fail."""
    number = event.number
    if event.call is Call.WRITE:
        yield Orders(number, Action.FAIL, errno.EIO)
        yield Orders(number, Action.FAIL, errno.ENOSPC)
        yield Orders(number, Action.FAIL, errno.ENOSPC, _GROWING)
        if event.length > 1:
            yield Orders(number, Action.SHORT)
            yield Orders(number, Action.SHORT, errno.ENOSPC)
    elif event.call in SYNCS:
        yield Orders(number, Action.FAIL, errno.EIO)
        yield Orders(number, Action.FAIL, errno.EIO, SYNCS)
        yield Orders(number, Action.FAIL, errno.ENOSPC)
    elif event.call is Call.ALLOCATE:
        yield Orders(number, Action.FAIL, errno.ENOSPC)
        yield Orders(number, Action.FAIL, errno.EIO)
    elif event.call in _NAMING:
        yield Orders(number, Action.FAIL, errno.EIO)
        if event.call in _GROWING:
            yield Orders(number, Action.FAIL, errno.ENOSPC)


def every_fault(events: Iterable[Event]) -> Iterator[tuple[Event, Orders]]:
    """Each call with each of its faults; calls that failed by themselves apart."""
    for event in events:
        if event.call is not Call.MARK and not event.error:
            for orders in faults_of(event):
                yield event, orders


def name_of(orders: Orders) -> str:
    """A fault for people."""
    lasting = " from there on" if orders.fails else ""
    error = errno.errorcode.get(orders.error, "")
    if orders.action is Action.SHORT:
        return "a short write" + (f", then {error}" if error else "")
    return f"{error}{lasting}"


@dataclass(frozen=True)
class ErrorsTask:
    """Every fault of every workload."""

    recordings: tuple[Recording, ...]
    share: Share

    def work(self, bench: Bench) -> Iterator[Message]:
        faults = [
            (recording, event, orders)
            for recording in self.recordings
            for event, orders in every_fault(recording.events())
        ]
        for recording, event, orders in self.share.mine(shuffled(faults, bench.spec.seed, "errors")):
            yield from self._failed(bench, recording, event, orders)
        if self.share.is_over and self.share.index == 0:
            yield NotCovered(f"its share of the budget was over before all {len(faults):,} faults were made")

    def _failed(self, bench: Bench, recording: Recording, event: Event, orders: Orders) -> Iterator[Message]:
        root = bench.runner.root()
        try:
            run = bench.runner.record(bench.spec.workloads[recording.name], root, orders)
            left = tree.read_tree(root, bench.ignored)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        sighting = partial(
            Sighting, "errors", recording.name, event.number, f"{name_of(orders)} at {event}", orders=orders
        )
        yield Counted({"error points": 1})
        if isinstance(run.outcome, Died | Hung):
            kind = "HANG" if isinstance(run.outcome, Hung) else "SIGNAL"
            yield sighting(Breach(kind, f"the workload {run.outcome}"), name_of(orders), left, run.history)
        aftermath = bench.judge.of(tree.digest(left), partial(tree.write_tree, left))
        for breach in bench.judge.breaches(run.history, aftermath):
            yield sighting(breach, f"{name_of(orders)}, then a restart", left, run.history)
        for found in self._cut(bench, run, orders):
            image, breach, how, at, survivors = found
            yield sighting(
                breach,
                f"{name_of(orders)}, then a power cut, {how}",
                image,
                run.history,
                crashes=(Crash(at, survivors),),
                tapes=(tape.encode_all(run.events),),
            )
        yield Counted({"power cuts behind errors": len(_fates(orders))})

    def _cut(self, bench: Bench, run: Run, orders: Orders) -> Iterator[tuple]:  # type: ignore[type-arg]
        playback = Playback(bench.spec.profile, bench.ignored)
        playback.play_all(run.events)
        pending = playback.platter.pending()
        for fate in _fates(orders):
            survivors = bench.spec.profile.legal(pending, fate.survivors(pending))
            after = playback.platter.after_cut(survivors)
            aftermath = bench.judge.of(after.image(), partial(tree.lay_out, after))
            for breach in bench.judge.breaches(run.history, aftermath):
                yield tree.seen_tree(after), breach, str(fate), len(run.events), survivors


def _fates(orders: Orders) -> list[Fate]:
    draw = Random(f"{orders.at} {orders.error}")
    return [LoseAll(), KeepAll(), RandomFate(draw.getrandbits(48), Tearing.WHOLE)]
