"""The rot layer: damages files of a closed store, which must report the damage or show the right content.

Each workload gives three undamaged stores: at its end, in its middle, and closed after a recovery. Damage
that no reader can detect is counted as "undecidable" and not as "silent": an image that is, byte for byte, a
possible result of a power cut at an earlier moment, or, if a rule says so, the loss of entries that only the
last sync of a log had made durable. A loss is "reported" if the store's notes name the damaged file or
everything that is missing; the verdict of the run states the number of reported losses.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from recovery.crashlab.judge.damage_verdict import DamageVerdict, harmful_differences, verdict_on_damage
from recovery.crashlab.judge.occurrence import Occurrence
from recovery.crashlab.judge.oracles import Breach, LastSyncUnwitnessed, OpenSucceedsOrNamed
from recovery.crashlab.judge.outcome import Answered
from recovery.crashlab.layers.model import moments
from recovery.crashlab.model import real_tree
from recovery.crashlab.model.damage import damages, round_robin
from recovery.crashlab.model.fates import LoseAll
from recovery.crashlab.record.history import NEVER, History
from recovery.crashlab.record.recording import histories
from recovery.crashlab.run.image_checker import failure_of
from recovery.crashlab.run.task import CountsReport, TableReport, batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.crashlab.judge.outcome import Outcome
    from recovery.crashlab.layers.model import Moment
    from recovery.crashlab.model.damage import Damage
    from recovery.crashlab.record.recording import Recording
    from recovery.crashlab.record.tape import Event
    from recovery.crashlab.run.task import Message, WorkerContext, WorkShare

COUNT = 150
"""For each undamaged store, without a budget."""
_VERSIONS_MAX = 6
UNDECIDABLE = "undecidable"


@dataclass(frozen=True)
class _UndamagedStore:
    """An undamaged store."""

    what: str
    workload: str
    number: int
    tree: real_tree.Tree
    older: dict[str, list[bytes]]
    history: History
    legal: frozenset[str]
    """The digests of what power cuts at earlier moments leave."""
    events: Sequence[Event] = ()
    index: int = 0
    """Its moment on the tape."""
    times: Mapping[tuple[str, bytes], int] = field(default_factory=dict)
    """Up to which moment each older version was the content of its file."""


@dataclass(frozen=True)
class RotTask:
    """Damages of all undamaged stores in turn; with a budget, as long as there is time."""

    recordings: tuple[Recording, ...]
    share: WorkShare

    def work(self, context: WorkerContext) -> Iterator[Message]:
        stores = [store for recording in self.recordings for store in _undamaged_stores(context, recording)]
        streams = [
            self.share.mine(
                damages(
                    store.tree,
                    store.older,
                    context.spec.kind_of,
                    context.spec.fields,
                    context.spec.seed,
                    None if self.share.until is not None else COUNT,
                )
            )
            for store in stores
        ]
        of_each = [zip(repeat(store), stream) for store, stream in zip(stores, streams, strict=False)]
        for group in batches(round_robin(of_each)):
            damaged_stores = [_DamagedStore(context, store, damage) for store, damage in group]
            outcomes = context.checker.outcomes([damaged.image for damaged in damaged_stores])
            for damaged, outcome in zip(damaged_stores, outcomes, strict=True):
                yield from damaged.judged(outcome)


class _DamagedStore:
    """An undamaged store with one damage."""

    def __init__(self, context: WorkerContext, store: _UndamagedStore, damage: Damage) -> None:
        self._context = context
        self._store = store
        self._damage = damage
        self.image = damage.apply(store.tree)

    def judged(self, outcome: Outcome) -> Iterator[Message]:
        """Judge the outcome. A bad outcome from a shared child is first tried again in its own process."""
        if not self._verdict(outcome).is_good:
            outcome = self._context.checker.outcome_of(self.image)
        verdict = self._verdict(outcome)
        column: str = verdict.value
        is_loss = verdict in (DamageVerdict.SILENT, DamageVerdict.REPORTED)
        if is_loss and isinstance(outcome, Answered) and self._is_undecidable(outcome):
            column = UNDECIDABLE
        yield CountsReport({"rot mutants": 1})
        yield TableReport(self._damage.kind, column)
        if not verdict.is_good and column == verdict.value:
            store = self._store
            breach = Breach(verdict.name, self._why(outcome))
            how, history = f"{self._damage}", store.history
            yield Occurrence(
                "rot",
                store.workload,
                store.number,
                store.what,
                breach,
                how,
                self.image,
                history,
                undamaged=store.tree,
            )

    def _verdict(self, outcome: Outcome) -> DamageVerdict:
        rule = self._context.spec.rule(OpenSucceedsOrNamed) or OpenSucceedsOrNamed()
        return verdict_on_damage(self._undamaged, outcome, self._store.history, rule, self._damage.path)

    @property
    def _undamaged(self) -> object:
        files = self._store.tree
        outcome = self._context.checker.of(
            real_tree.digest(files), partial(real_tree.write_tree, files)
        ).outcome
        assert isinstance(outcome, Answered)
        return outcome.answer

    def _is_undecidable(self, outcome: Answered) -> bool:
        """Return whether no reader could tell that there was a loss."""
        if real_tree.digest(self.image) in self._store.legal:
            return True
        witnessed = self._witnessed()
        if witnessed is None:
            return False
        return next(harmful_differences(self._undamaged, outcome.answer, witnessed), None) is None

    def _witnessed(self) -> History | None:
        """Return the history without what only the last sync of the damaged log made durable.

        If the damage replaced the log by an older version, that is the last sync of this version.
        """
        rule = self._context.spec.rule(LastSyncUnwitnessed)
        if rule is None or rule.kind != self._damage.kind:
            return None
        version = self._damage.path, self._damage.put
        index = self._store.times.get(version, self._store.index)
        return _witnessed(self._context, self._store, rule.kind, index)

    def _why(self, outcome: Outcome) -> str:
        if not isinstance(outcome, Answered):
            return f"{outcome}"
        first = next(harmful_differences(self._undamaged, outcome.answer, self._store.history), None)
        return f"{first}" if first else f"{outcome}"


# ── undamaged stores ────────────────────────────────────────────────────────────────────────────────────────


def _undamaged_stores(context: WorkerContext, recording: Recording) -> Iterator[_UndamagedStore]:
    events = recording.events()
    found = moments(recording, events, context.spec.profile, context.ignored)
    legal = frozenset(_power_cut_digest(moment) for moment in found)
    for moment, what in ((found[-1], "at the end"), (found[len(found) * 2 // 3], "in the middle")):
        files = real_tree.visible_tree(moment.platter)
        older, times = _older_versions(files, moment, found)
        yield _UndamagedStore(
            what,
            moment.workload,
            moment.number,
            files,
            older,
            moment.history,
            legal,
            events,
            moment.index,
            times,
        )
    root = context.runner.root()
    try:
        real_tree.lay_out(found[-1].platter, root)
        closed = context.runner.recover(context.spec.recover, root)
        if failure_of(closed) is None:
            left = real_tree.read_tree(root, context.ignored)
            older, _ = _older_versions(left, found[-1], found)
            last = found[-1]
            yield _UndamagedStore(
                "after a recovery", last.workload, last.number, left, older, last.history, frozenset()
            )
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _witnessed(context: WorkerContext, store: _UndamagedStore, kind: str, index: int) -> History | None:
    """Return the history in which nothing after the last sync of that kind of file is acknowledged."""
    syncs = [
        number
        for number, event in enumerate(store.events[:index])
        if event.is_sync and context.spec.kind_of(event.path) == kind
    ]
    if not syncs:
        return None
    before = {op.invoked: op for op in histories(store.events, syncs[-1:])[syncs[-1]].ops}
    return History(tuple(before.get(op.invoked, replace(op, acked=NEVER)) for op in store.history.ops))


def _power_cut_digest(moment: Moment) -> str:
    pending = moment.platter.pending()
    return real_tree.digest(real_tree.visible_tree(moment.platter.after_cut(LoseAll().survivors(pending))))


def _older_versions(
    files: real_tree.Tree, moment: Moment, found: Sequence[Moment]
) -> tuple[dict[str, list[bytes]], dict[tuple[str, bytes], int]]:
    """Return earlier versions of each file, evenly spread in time, and when each was the content."""
    versions: dict[str, list[bytes]] = {}
    times: dict[tuple[str, bytes], int] = {}
    for earlier in found:
        if earlier.index >= moment.index:
            break
        for path, data in real_tree.visible_tree(earlier.platter).items():
            known = versions.setdefault(path, [])
            times[path, data] = earlier.index
            if path in files and data != files[path] and data not in known:
                known.append(data)
    return {
        path: known[:: -(-len(known) // _VERSIONS_MAX)] for path, known in versions.items() if known
    }, times
