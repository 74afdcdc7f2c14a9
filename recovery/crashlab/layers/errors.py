"""The errors layer: each call fails once in every possible way, or goes on failing.

After the run the store is recovered from the files as they are, as after a restart. It is also recovered
after power cuts, soon after the fault and at the end, because a failed sync marks pages clean that were never
written.
"""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from recovery.crashlab.judge.occurrence import Occurrence
from recovery.crashlab.judge.oracles import Breach
from recovery.crashlab.judge.outcome import Died, Hung
from recovery.crashlab.model import real_tree
from recovery.crashlab.model.fates import KeepAll, LoseAll, RandomFate, Tearing
from recovery.crashlab.record import tape
from recovery.crashlab.record.crash import Crash
from recovery.crashlab.record.playback import Playback
from recovery.crashlab.record.preload import Action, Orders
from recovery.crashlab.record.recording import histories
from recovery.crashlab.record.tape import SYNCS, Call
from recovery.crashlab.run.image_checker import CrashImage
from recovery.crashlab.run.task import CountsReport, NotCovered, batches, shuffled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.crashlab.model.fates import Fate
    from recovery.crashlab.model.platter import Platter
    from recovery.crashlab.record.history import History
    from recovery.crashlab.record.recording import Recording
    from recovery.crashlab.record.tape import Event
    from recovery.crashlab.run.runner import ProgramRun
    from recovery.crashlab.run.task import Message, WorkerContext, WorkShare

_GROWING = frozenset({Call.WRITE, Call.ALLOCATE, Call.CREATE, Call.MKDIR, Call.TRUNCATE})
_NAMING = frozenset({Call.CREATE, Call.MKDIR, Call.RENAME, Call.LINK, Call.UNLINK, Call.RMDIR, Call.TRUNCATE})


def faults_of(event: Event) -> Iterator[Orders]:
    """Yield every way in which that call can fail."""
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
    """Yield each call with each of its faults, except calls that failed in the recording."""
    for event in events:
        if event.call is not Call.MARK and not event.error:
            for orders in faults_of(event):
                yield event, orders


def name_of(orders: Orders) -> str:
    """Describe a fault for people."""
    lasting = " from there on" if orders.fails else ""
    error = errno.errorcode.get(orders.error, "")
    if orders.action is Action.SHORT:
        return "a short write" + (f", then {error}" if error else "")
    return f"{error}{lasting}"


SOON = 4
"""The number of syncs after a failed one at which the power is cut as well."""


@dataclass(frozen=True)
class ErrorsTask:
    """Every fault of every workload."""

    recordings: tuple[Recording, ...]
    share: WorkShare

    def work(self, context: WorkerContext) -> Iterator[Message]:
        faults = [
            (recording, event, orders)
            for recording in self.recordings
            for event, orders in every_fault(recording.events())
        ]
        mine = self.share.mine(shuffled(faults, context.spec.seed, "errors"))
        for group in batches(mine, 6):
            cases: list[CrashImage] = []
            for recording, event, orders in group:
                root = context.runner.root()
                try:
                    run = context.runner.record(context.spec.workloads[recording.name], root, orders)
                    left = real_tree.read_tree(root, context.ignored)
                finally:
                    shutil.rmtree(root, ignore_errors=True)
                failed = _FaultyRun(recording.name, event, orders, run, left)
                cases += [failed.restarted(), *failed.cuts(context)]
                yield from failed.ended()
            yield CountsReport(
                {"error points": len(group), "power cuts after errors": len(cases) - len(group)}
            )
            yield from context.checker.check(cases)
        if self.share.is_over and self.share.index == 0:
            yield NotCovered(f"its share of the budget was over before all {len(faults):,} faults were made")


@dataclass(frozen=True)
class _FaultyRun:
    """A workload that hit a fault, and the files that it left."""

    workload: str
    event: Event
    orders: Orders
    run: ProgramRun
    left: real_tree.Tree

    def ended(self) -> Iterator[Occurrence]:
        """Yield an occurrence if the fault killed the process or made it hang."""
        if isinstance(self.run.outcome, Died | Hung):
            kind = "HANG" if isinstance(self.run.outcome, Hung) else "SIGNAL"
            breach = Breach(kind, f"the workload {self.run.outcome}")
            yield self._occurrence("the fault alone", self.left, self.run.history, (), (), breach)

    def restarted(self) -> CrashImage:
        """Return the files as a new process finds them."""
        occurrence = partial(self._occurrence, "then a restart", self.left, self.run.history, (), ())
        digest = real_tree.digest(self.left)
        return CrashImage(digest, partial(real_tree.write_tree, self.left), self.run.history, occurrence)

    def cuts(self, context: WorkerContext) -> Iterator[CrashImage]:
        """Yield the images after power cuts, because pages that a failed sync marked clean may be gone."""
        moments = self._moments(context)
        promised = histories(self.run.events, moments)
        for index, platter in moments.items():
            pending = platter.pending()
            for fate in _fates(self.orders):
                survivors = context.spec.profile.legal(pending, fate.survivors(pending))
                yield self._cut(platter, Crash(index, survivors), promised[index], f"{fate}")

    def _moments(self, context: WorkerContext) -> dict[int, Platter]:
        """Return the disk before the next syncs, by their indexes, and at the end.

        A store that ignores a failed sync has lost something until it writes all of it again.
        """
        events = self.run.events
        struck = next((at for at, one in enumerate(events) if one.is_injected), len(events))
        playback = Playback(context.spec.profile, context.ignored)
        found: dict[int, Platter] = {}
        for index, event in playback.moments(events):
            if event is None or (struck < index and len(found) < (SOON if self.event.is_sync else 1)):
                found[index] = playback.platter.copy()
        return found

    def _cut(self, platter: Platter, crash: Crash, history: History, fate: str) -> CrashImage:
        assert crash.survivors is not None
        after, events = platter.after_cut(crash.survivors), self.run.events
        when = f" before {events[crash.at]}" if crash.at < len(events) else ""
        occurrence = partial(
            self._occurrence,
            f"then a power cut{when}, {fate}",
            real_tree.visible_tree(after),
            history,
            (crash,),
            (tape.encode_all(events),),
        )
        return CrashImage(after.image(), partial(real_tree.lay_out, after), history, occurrence)

    def _occurrence(
        self,
        how: str,
        image: real_tree.Tree,
        history: History,
        crashes: tuple[Crash, ...],
        tapes: tuple[bytes, ...],
        breach: Breach,
    ) -> Occurrence:
        call = f"{name_of(self.orders)} at {self.event}"
        number = self.event.number
        return Occurrence(
            "errors", self.workload, number, call, breach, how, image, history, crashes, tapes, self.orders
        )


def _fates(orders: Orders) -> list[Fate]:
    draw = Random(f"{orders.at} {orders.error}")
    return [LoseAll(), KeepAll(), RandomFate(draw.getrandbits(48), Tearing.WHOLE)]
