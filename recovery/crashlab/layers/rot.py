"""The rot layer: bytes change under a store that nobody runs, and it must say so or stay right.

Each workload gives three bases: as it was left at its end, as it was in the middle, and behind a recovery
that closed it in peace. What no reader can tell is counted on its own and not as silent: an image that is,
byte for byte, what a power cut at an earlier moment would have left. What the store shows less of, and
reports to have cut off, is "reported".
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from recovery.crashlab import tree
from recovery.crashlab.fates import LoseAll
from recovery.crashlab.judge import trouble
from recovery.crashlab.layers.model import moments
from recovery.crashlab.layers.task import Counted, NotCovered, Sighting, Tabled
from recovery.crashlab.oracles import Breach, OpenSucceedsOrNamed
from recovery.crashlab.outcome import Answered
from recovery.crashlab.rot import damages
from recovery.crashlab.shown import as_shown
from recovery.crashlab.verdict import Verdict, differences, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.crashlab.damage import Damage
    from recovery.crashlab.history import History
    from recovery.crashlab.layers.model import Moment
    from recovery.crashlab.layers.task import Bench, Message, Recording, Share
    from recovery.crashlab.outcome import Outcome

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


@dataclass(frozen=True)
class RotTask:
    """Damage after damage, over all bases in turns."""

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
        waiting = list(zip(bases, streams, strict=True))
        while waiting:
            for pair in list(waiting):
                base, stream = pair
                damage = next(stream, None)
                if damage is None:
                    waiting.remove(pair)
                else:
                    yield from self._damaged(bench, base, damage)
        if self.share.index == 0 and self.share.is_over:
            yield NotCovered("damages without end: as many as its share of the budget had room for")

    def _damaged(self, bench: Bench, base: _Base, damage: Damage) -> Iterator[Message]:
        image = {path: bytes(data) for path, data in damage.apply(base.tree).items()}
        digest = tree.digest(image)
        undamaged = bench.judge.of(tree.digest(base.tree), partial(tree.write_tree, base.tree)).outcome
        assert isinstance(undamaged, Answered)
        root = bench.runner.root()
        try:
            tree.write_tree(image, root)
            outcome = bench.runner.recover(bench.spec.recover, root)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        rule = bench.spec.rule(OpenSucceedsOrNamed) or OpenSucceedsOrNamed()
        verdict = judge(undamaged.answer, outcome, base.history, rule)
        told = _told(verdict, digest, base, undamaged.answer, outcome)
        yield Counted({"rot mutants": 1})
        yield Tabled(damage.kind, told)
        if not verdict.is_good and told == verdict.value:
            yield Sighting(
                "rot",
                base.workload,
                base.number,
                base.what,
                Breach(verdict.name, _why(undamaged, outcome, base.history)),
                f"{damage}",
                image,
                base.history,
            )


def _told(verdict: Verdict, digest: str, base: _Base, undamaged: object, outcome: Outcome) -> str:
    if verdict is not Verdict.SILENT:
        return verdict.value
    if digest in base.legal:
        return UNDECIDABLE
    assert isinstance(outcome, Answered)
    said = set(as_shown(outcome.answer).notes) - set(as_shown(undamaged).notes)
    return REPORTED if said else verdict.value


def _why(undamaged: Answered, outcome: Outcome, history: History) -> str:
    if not isinstance(outcome, Answered):
        return f"{outcome}"
    first = next(differences(undamaged.answer, outcome.answer, history), None)
    return f"{first}" if first else f"{outcome}"


# ── bases ───────────────────────────────────────────────────────────────────────────────────────────────────


def _bases(bench: Bench, recording: Recording) -> Iterator[_Base]:
    found = moments(recording, recording.events(), bench.spec.profile, bench.ignored)
    legal = frozenset(_cut(moment) for moment in found)
    for moment, what in ((found[-1], "at the end"), (found[len(found) * 2 // 3], "in the middle")):
        yield _base(what, moment, tree.seen_tree(moment.platter), found, legal)
    root = bench.runner.root()
    try:
        tree.lay_out(found[-1].platter, root)
        closed = bench.runner.recover(bench.spec.recover, root)
        if trouble(closed) is None:
            left = tree.read_tree(root, bench.ignored)
            yield _base("behind a recovery", found[-1], left, found, frozenset())
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _base(
    what: str, moment: Moment, files: tree.Tree, found: Sequence[Moment], legal: frozenset[str]
) -> _Base:
    return _Base(
        what, moment.workload, moment.number, files, _older(files, moment, found), moment.history, legal
    )


def _cut(moment: Moment) -> str:
    pending = moment.platter.pending()
    return tree.digest(tree.seen_tree(moment.platter.after_cut(LoseAll().survivors(pending))))


def _older(files: tree.Tree, moment: Moment, found: Sequence[Moment]) -> dict[str, list[bytes]]:
    """Earlier versions of each file, evenly over the time before."""
    versions: dict[str, list[bytes]] = {}
    for earlier in found:
        if earlier.index >= moment.index:
            break
        for path, data in tree.seen_tree(earlier.platter).items():
            known = versions.setdefault(path, [])
            if path in files and data != files[path] and data not in known:
                known.append(data)
    return {path: known[:: -(-len(known) // _VERSIONS_MAX)] for path, known in versions.items() if known}
