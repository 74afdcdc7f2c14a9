"""A violation as a directory: what happened, the exact image, the tapes, and a script that shows it again.

violation.json    class, cause, crash point, lost units, profile, seed
image/            the disk as it was when the store was opened
trace.txt         the calls and marks around the crash
tape-0, …         everything that was recorded
violation.pickle  the same for `ledgerstore crash replay`, with the programs as they were
repro.py          opens a copy of the image without the laboratory
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from recovery.crashlab import oracles, rebuild, tape, tree
from recovery.crashlab.history import to_json
from recovery.crashlab.judge import Judge
from recovery.crashlab.programs import Command

if TYPE_CHECKING:
    from recovery.crashlab.layers.task import Sighting
    from recovery.crashlab.numbers import ViolationNumbers
    from recovery.crashlab.oracles import Breach
    from recovery.crashlab.running import Runner
    from recovery.crashlab.spec import Spec

_REPRO = Path(__file__).with_name("repro_template.py")


@dataclass(frozen=True)
class Violation:
    """Everything about it."""

    spec: Spec
    sighting: Sighting
    tapes: tuple[bytes, ...]
    numbers: ViolationNumbers
    trace: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of trying again."""

    is_same_image: bool
    """Whether the image that was made again is the one that was kept, byte for byte."""
    breaches: tuple[Breach, ...]
    expected: Breach

    @property
    def shows(self) -> bool:
        """Whether the same kind of breach shows."""
        return any(breach.kind == self.expected.kind for breach in self.breaches)


def write(violation: Violation, place: Path) -> None:
    """The directory; one of that name that was there is replaced."""
    shutil.rmtree(place, ignore_errors=True)
    image = place / "image"
    image.mkdir(parents=True)
    tree.write_tree(violation.sighting.image, image)
    (place / "trace.txt").write_text(violation.trace, encoding="utf-8")
    for number, one in enumerate(violation.tapes):
        (place / f"tape-{number}").write_bytes(one)
    (place / "violation.pickle").write_bytes(cloudpickle.dumps(violation))
    (place / "violation.json").write_text(json.dumps(_told(violation), indent=1) + "\n")
    (place / "repro.py").write_text(_repro(violation), encoding="utf-8")


def load(place: Path) -> Violation:
    """The violation that was written there. Runs code that is in it: only for directories that one trusts."""
    violation: Violation = cloudpickle.loads((place / "violation.pickle").read_bytes())
    return violation


def replay(violation: Violation, runner: Runner) -> Replayed:
    """Makes the image again and opens it; behind a kill or an error the workload is run again."""
    sighting, spec = violation.sighting, violation.spec
    image = _made_again(violation, runner)
    judge = Judge(spec, runner)
    breaches = tuple(judge.breaches_of(tree.digest(image), partial(tree.write_tree, image), sighting.history))
    return Replayed(tree.digest(image) == tree.digest(sighting.image), breaches, sighting.breach)


def _made_again(violation: Violation, runner: Runner) -> tree.Tree:
    sighting, spec = violation.sighting, violation.spec
    if sighting.crashes:
        tapes = [list(tape.decode(one)) for one in violation.tapes]
        platter = rebuild.before(sighting.crashes, tapes, spec.profile, spec.ignored)
        survivors = sighting.crashes[-1].survivors
        return tree.seen_tree(platter if survivors is None else platter.after_cut(survivors))
    if sighting.orders is None:
        return sighting.image
    root = runner.root()
    runner.record(spec.workloads[sighting.workload], root, sighting.orders)
    return tree.read_tree(root, spec.ignored)


# ── in words ────────────────────────────────────────────────────────────────────────────────────────────────


def _told(violation: Violation) -> dict[str, Any]:
    spec, sighting = violation.spec, violation.sighting
    return {
        **asdict(violation.numbers),
        "store": spec.name,
        "seed": spec.seed,
        "explored under": spec.profile.name,
        "call": sighting.call,
        "how": sighting.how,
        "image digest": tree.digest(sighting.image),
        "acknowledged": [_op(op) for op in sighting.history.ops if op.is_acked],
        "asked, not acknowledged": [_op(op) for op in sighting.history.ops if not op.is_acked],
    }


def _op(op: Any) -> list[Any]:
    return [op.kind, *map(to_json, op.args)]


def _repro(violation: Violation) -> str:
    recover = violation.spec.recover
    command = list(recover.arguments) if isinstance(recover, Command) else None
    pickled = b"" if command else cloudpickle.dumps(recover)
    must = [(key, writes[-1].value) for key, writes in oracles.settled(violation.sighting.history)]
    return (
        _REPRO.read_text()
        .replace('"THE CAUSE"', repr(violation.numbers.cause))
        .replace("COMMAND: list[str] | None = None", f"COMMAND: list[str] | None = {command!r}")
        .replace('RECOVER = b""', f"RECOVER = {pickled!r}")
        .replace("MUST: list[tuple[object, object]] = []", f"MUST: list[tuple[object, object]] = {must!r}")
    )
