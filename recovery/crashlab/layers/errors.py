"""The errors layer: every call fails once, in each way that its kind can fail, or goes on failing.

Behind the run the store is recovered as it lies, as after a restart; and as power cuts would leave it, soon
behind the fault and at the end, for a failed sync has called pages clean that were never written.
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
from recovery.crashlab.judge import Case
from recovery.crashlab.layers.task import (
    Counted,
    Crash,
    NotCovered,
    Sighting,
    grouped,
    histories,
    shuffled,
)
from recovery.crashlab.oracles import Breach
from recovery.crashlab.outcome import Died, Hung
from recovery.crashlab.playback import Playback
from recovery.crashlab.preload import Action, Orders
from recovery.crashlab.tape import SYNCS, Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.crashlab.fates import Fate
    from recovery.crashlab.history import History
    from recovery.crashlab.layers.task import Bench, Message, Recording, Share
    from recovery.crashlab.platter import Platter
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


SOON = 4
"""So many syncs behind a failed one the power is cut as well."""


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
        mine = self.share.mine(shuffled(faults, bench.spec.seed, "errors"))
        for group in grouped(mine, 6):
            cases: list[Case] = []
            for recording, event, orders in group:
                root = bench.runner.root()
                try:
                    run = bench.runner.record(bench.spec.workloads[recording.name], root, orders)
                    left = tree.read_tree(root, bench.ignored)
                finally:
                    shutil.rmtree(root, ignore_errors=True)
                failed = _Failed(recording.name, event, orders, run, left)
                cases += [failed.restarted(), *failed.cuts(bench)]
                yield from failed.ended()
            yield Counted({"error points": len(group), "power cuts behind errors": len(cases) - len(group)})
            yield from bench.judge.check(cases)
        if self.share.is_over and self.share.index == 0:
            yield NotCovered(f"its share of the budget was over before all {len(faults):,} faults were made")


@dataclass(frozen=True)
class _Failed:
    """A workload that met a fault, and what it left."""

    workload: str
    event: Event
    orders: Orders
    run: Run
    left: tree.Tree

    def ended(self) -> Iterator[Sighting]:
        """A fault must not kill the process that meets it, nor keep it for ever."""
        if isinstance(self.run.outcome, Died | Hung):
            kind = "HANG" if isinstance(self.run.outcome, Hung) else "SIGNAL"
            breach = Breach(kind, f"the workload {self.run.outcome}")
            yield self._sighting("the fault alone", self.left, self.run.history, (), (), breach)

    def restarted(self) -> Case:
        """The files as they lie, as a new process finds them."""
        sighting = partial(self._sighting, "then a restart", self.left, self.run.history, (), ())
        digest = tree.digest(self.left)
        return Case(digest, partial(tree.write_tree, self.left), self.run.history, sighting)

    def cuts(self, bench: Bench) -> Iterator[Case]:
        """The same behind power cuts: what a failed sync called clean may be gone."""
        moments = self._moments(bench)
        promised = histories(self.run.events, moments)
        for index, platter in moments.items():
            pending = platter.pending()
            for fate in _fates(self.orders):
                survivors = bench.spec.profile.legal(pending, fate.survivors(pending))
                yield self._cut(platter, Crash(index, survivors), promised[index], f"{fate}")

    def _moments(self, bench: Bench) -> dict[int, Platter]:
        """The disk before the next syncs, by their indexes, and at the end.

        A store that takes a failed sync for a good one has lost something until it writes all of it anew.
        """
        events = self.run.events
        struck = next((at for at, one in enumerate(events) if one.is_injected), len(events))
        playback = Playback(bench.spec.profile, bench.ignored)
        found: dict[int, Platter] = {}
        for index, event in playback.moments(events):
            if event is None or (struck < index and len(found) < (SOON if self.event.is_sync else 1)):
                found[index] = playback.platter.copy()
        return found

    def _cut(self, platter: Platter, crash: Crash, history: History, fate: str) -> Case:
        assert crash.survivors is not None
        after, events = platter.after_cut(crash.survivors), self.run.events
        when = f" before {events[crash.at]}" if crash.at < len(events) else ""
        sighting = partial(
            self._sighting,
            f"then a power cut{when}, {fate}",
            tree.seen_tree(after),
            history,
            (crash,),
            (tape.encode_all(events),),
        )
        return Case(after.image(), partial(tree.lay_out, after), history, sighting)

    def _sighting(
        self,
        how: str,
        image: tree.Tree,
        history: History,
        crashes: tuple[Crash, ...],
        tapes: tuple[bytes, ...],
        breach: Breach,
    ) -> Sighting:
        call = f"{name_of(self.orders)} at {self.event}"
        number = self.event.number
        return Sighting(
            "errors", self.workload, number, call, breach, how, image, history, crashes, tapes, self.orders
        )


def _fates(orders: Orders) -> list[Fate]:
    draw = Random(f"{orders.at} {orders.error}")
    return [LoseAll(), KeepAll(), RandomFate(draw.getrandbits(48), Tearing.WHOLE)]
