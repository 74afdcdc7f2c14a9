"""A violation as a directory: what happened, the exact image, the tapes, and a script that reproduces it.

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
import sys
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from recovery.crashlab.judge import oracles
from recovery.crashlab.model import real_tree
from recovery.crashlab.record.history import to_json
from recovery.crashlab.run.spec import Command

if TYPE_CHECKING:
    from recovery.crashlab.judge.occurrence import Occurrence
    from recovery.crashlab.judge.run_figures import ViolationNumbers
    from recovery.crashlab.run.spec import Spec

VIOLATIONS = "violations"
"""The folder of these directories in a report."""

_PICKLE, _FACTS = "violation.pickle", "violation.json"
_REPRO = Path(__file__).with_name("repro_template.py")


@dataclass(frozen=True)
class Violation:
    """All data of a violation."""

    spec: Spec
    occurrence: Occurrence
    tapes: tuple[bytes, ...]
    numbers: ViolationNumbers
    trace: str


def write(violation: Violation, place: Path) -> None:
    """Write the directory as a whole or not at all, and replace an earlier one of that name."""
    draft = place.with_name(f".{place.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _write(violation, draft)
        shutil.rmtree(place, ignore_errors=True)
        draft.rename(place)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _write(violation: Violation, place: Path) -> None:
    image = place / "image"
    image.mkdir(parents=True)
    real_tree.write_tree(violation.occurrence.image, image)
    (place / "trace.txt").write_text(violation.trace, encoding="utf-8")
    for number, one in enumerate(violation.tapes):
        (place / f"tape-{number}").write_bytes(one)
    (place / _PICKLE).write_bytes(cloudpickle.dumps(violation))
    (place / _FACTS).write_text(json.dumps(_facts(violation), indent=1) + "\n")
    (place / "repro.py").write_text(_repro(violation), encoding="utf-8")


def forget(places: Path) -> None:
    """Remove the violations of an earlier run, and nothing else."""
    for file in places.glob(f"*/{_FACTS}"):
        shutil.rmtree(file.parent)


def load(place: Path) -> Violation:
    """Load a violation. This runs code that is in it, so use it only for trusted directories.

    The store is imported from where it was then; other modules of this process have precedence.
    """
    facts = json.loads((place / _FACTS).read_text())
    sys.path += [path for path in facts["path"] if path not in sys.path]
    violation: Violation = cloudpickle.loads((place / _PICKLE).read_bytes())
    return violation


# ── as JSON and as a script ─────────────────────────────────────────────────────────────────────────────────


def _facts(violation: Violation) -> dict[str, Any]:
    spec, occurrence = violation.spec, violation.occurrence
    return {
        **asdict(violation.numbers),
        "store": spec.name,
        "seed": spec.seed,
        "explored under": spec.profile.name,
        "call": occurrence.call,
        "how": occurrence.how,
        "image digest": real_tree.digest(occurrence.image),
        "acknowledged": [_op(op) for op in occurrence.history.ops if op.is_acked],
        "asked, not acknowledged": [_op(op) for op in occurrence.history.ops if not op.is_acked],
        "path": _path(),
    }


def _path() -> list[str]:
    """Return where modules are found in this process beyond what is installed."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    dynamic = {f"{place}/lib-dynload" for place in installed}
    return [path for path in sys.path if path not in installed | dynamic and not path.endswith(".zip")]


def _op(op: Any) -> list[Any]:
    return [op.kind, *map(to_json, op.args)]


def _repro(violation: Violation) -> str:
    recover = violation.spec.recover
    command = list(recover.arguments) if isinstance(recover, Command) else None
    pickled = b"" if command else cloudpickle.dumps(recover)
    must = [(key, writes[-1].value) for key, writes in oracles.certain_writes(violation.occurrence.history)]
    return (
        _REPRO.read_text()
        .replace('"THE CAUSE"', repr(violation.numbers.cause))
        .replace("COMMAND: list[str] | None = None", f"COMMAND: list[str] | None = {command!r}")
        .replace("PATH: list[str] = []", f"PATH: list[str] = {_path()!r}")
        .replace('RECOVER = b""', f"RECOVER = {pickled!r}")
        .replace("MUST: list[tuple[object, object]] = []", f"MUST: list[tuple[object, object]] = {must!r}")
    )
