"""The rot layer: bytes change under a store that nobody runs, and it must say so or stay right.

Each workload gives three bases: as it was left at its end, as it was in the middle, and behind a recovery
that closed it in peace. What no reader can tell is counted on its own and not as silent: an image that is,
byte for byte, what a power cut at an earlier moment would have left, or the loss of what only the last sync
of a log had made durable, where a rule says so. What the store shows less of, and reports to have cut off,
is "reported".
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from recovery.crashlab import tree
from recovery.crashlab.fates import LoseAll
from recovery.crashlab.history import NEVER, History
from recovery.crashlab.judge import trouble
from recovery.crashlab.layers.model import moments
from recovery.crashlab.layers.task import Counted, Sighting, Tabled, grouped, histories
from recovery.crashlab.oracles import Breach, LastSyncUnwitnessed, OpenSucceedsOrNamed
from recovery.crashlab.outcome import Answered
from recovery.crashlab.rot import damages, in_turns
from recovery.crashlab.shown import as_shown
from recovery.crashlab.verdict import Verdict, differences, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.crashlab.damage import Damage
    from recovery.crashlab.layers.model import Moment
    from recovery.crashlab.layers.task import Bench, Message, Recording, Share
    from recovery.crashlab.outcome import Outcome
    from recovery.crashlab.tape import Event

COUNT = 150
"""Of each base, without a budget."""
_VERSIONS_MAX = 6
UNDECIDABLE = "undecidable"
REPORTED = "reported"


@dataclass(frozen=True)
class _Base:
    """A sound store, to be damaged."""

    what: str
    workload: str
    number: int
    tree: tree.Tree
    older: dict[str, list[bytes]]
    history: History
    legal: frozenset[str]
    """The digests of what power cuts at earlier moments leave."""
    events: Sequence[Event] = ()
    index: int = 0
    """The moment of it on the tape."""
    times: Mapping[tuple[str, bytes], int] = field(default_factory=dict)
    """When each older version of a file was the file."""


@dataclass(frozen=True)
class RotTask:
    """Damage after damage, over all bases in turns; there is no end to them but the budget's."""

    recordings: tuple[Recording, ...]
    share: Share

    def work(self, bench: Bench) -> Iterator[Message]:
        bases = [base for recording in self.recordings for base in _bases(bench, recording)]
        streams = [
            self.share.mine(
                damages(
                    base.tree,
                    base.older,
                    bench.spec.kind_of,
                    bench.spec.fields,
                    bench.spec.seed,
                    None if self.share.until is not None else COUNT,
                )
            )
            for base in bases
        ]
        of_each = [zip(repeat(base), stream) for base, stream in zip(bases, streams, strict=False)]
        for group in grouped(in_turns(of_each)):
            mutants = [_Mutant(bench, base, damage) for base, damage in group]
            outcomes = bench.judge.outcomes([mutant.image for mutant in mutants])
            for mutant, outcome in zip(mutants, outcomes, strict=True):
                yield from mutant.judged(outcome)


class _Mutant:
    """A damaged base."""

    def __init__(self, bench: Bench, base: _Base, damage: Damage) -> None:
        self._bench = bench
        self._base = base
        self._damage = damage
        self.image = damage.apply(base.tree)

    def judged(self, outcome: Outcome) -> Iterator[Message]:
        """What to think of it. What came of it in the company of others is tried again before it is told."""
        if not self._verdict(outcome).is_good:
            outcome = self._bench.judge.outcome_of(self.image)
        verdict = self._verdict(outcome)
        told = verdict.value
        if verdict is Verdict.SILENT and isinstance(outcome, Answered):
            told = self._excuse(outcome) or told
        yield Counted({"rot mutants": 1})
        yield Tabled(self._damage.kind, told)
        if not verdict.is_good and told == verdict.value:
            base = self._base
            breach = Breach(verdict.name, self._why(outcome))
            how, history = f"{self._damage}", base.history
            yield Sighting(
                "rot",
                base.workload,
                base.number,
                base.what,
                breach,
                how,
                self.image,
                history,
                undamaged=base.tree,
            )

    def _verdict(self, outcome: Outcome) -> Verdict:
        rule = self._bench.spec.rule(OpenSucceedsOrNamed) or OpenSucceedsOrNamed()
        return judge(self._undamaged, outcome, self._base.history, rule)

    @property
    def _undamaged(self) -> object:
        files = self._base.tree
        outcome = self._bench.judge.of(tree.digest(files), partial(tree.write_tree, files)).outcome
        assert isinstance(outcome, Answered)
        return outcome.answer

    def _excuse(self, outcome: Answered) -> str:
        """Why a silent loss is none."""
        base = self._base
        if tree.digest(self.image) in base.legal:
            return UNDECIDABLE
        witnessed = self._witnessed()
        if witnessed and next(differences(self._undamaged, outcome.answer, witnessed), None) is None:
            return UNDECIDABLE
        said = set(as_shown(outcome.answer).notes) - set(as_shown(self._undamaged).notes)
        return REPORTED if said else ""

    def _witnessed(self) -> History | None:
        """What more than the last sync of a damaged log stands for: what the log was when it was so old."""
        rule = self._bench.spec.rule(LastSyncUnwitnessed)
        if rule is None or rule.kind != self._damage.kind:
            return None
        version = self._damage.path, self._damage.put
        index = self._base.times.get(version, self._base.index)
        return _witnessed(self._bench, self._base, rule.kind, index)

    def _why(self, outcome: Outcome) -> str:
        if not isinstance(outcome, Answered):
            return f"{outcome}"
        first = next(differences(self._undamaged, outcome.answer, self._base.history), None)
        return f"{first}" if first else f"{outcome}"


# ── bases ───────────────────────────────────────────────────────────────────────────────────────────────────


def _bases(bench: Bench, recording: Recording) -> Iterator[_Base]:
    events = recording.events()
    found = moments(recording, events, bench.spec.profile, bench.ignored)
    legal = frozenset(_cut(moment) for moment in found)
    for moment, what in ((found[-1], "at the end"), (found[len(found) * 2 // 3], "in the middle")):
        files = tree.seen_tree(moment.platter)
        older, times = _older(files, moment, found)
        yield _Base(
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
    root = bench.runner.root()
    try:
        tree.lay_out(found[-1].platter, root)
        closed = bench.runner.recover(bench.spec.recover, root)
        if trouble(closed) is None:
            left = tree.read_tree(root, bench.ignored)
            older, _ = _older(left, found[-1], found)
            last = found[-1]
            yield _Base(
                "behind a recovery", last.workload, last.number, left, older, last.history, frozenset()
            )
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _witnessed(bench: Bench, base: _Base, kind: str, index: int) -> History | None:
    """What had been answered before the last sync of that kind of file; the rest as if it had not."""
    syncs = [
        number
        for number, event in enumerate(base.events[:index])
        if event.is_sync and bench.spec.kind_of(event.path) == kind
    ]
    if not syncs:
        return None
    before = {op.invoked: op for op in histories(base.events, syncs[-1:])[syncs[-1]].ops}
    return History(tuple(before.get(op.invoked, replace(op, acked=NEVER)) for op in base.history.ops))


def _cut(moment: Moment) -> str:
    pending = moment.platter.pending()
    return tree.digest(tree.seen_tree(moment.platter.after_cut(LoseAll().survivors(pending))))


def _older(
    files: tree.Tree, moment: Moment, found: Sequence[Moment]
) -> tuple[dict[str, list[bytes]], dict[tuple[str, bytes], int]]:
    """Earlier versions of each file, evenly over the time before, and when each of them was the file."""
    versions: dict[str, list[bytes]] = {}
    times: dict[tuple[str, bytes], int] = {}
    for earlier in found:
        if earlier.index >= moment.index:
            break
        for path, data in tree.seen_tree(earlier.platter).items():
            known = versions.setdefault(path, [])
            times[path, data] = earlier.index
            if path in files and data != files[path] and data not in known:
                known.append(data)
    return {
        path: known[:: -(-len(known) // _VERSIONS_MAX)] for path, known in versions.items() if known
    }, times
