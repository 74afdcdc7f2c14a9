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
import sys
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from recovery.crashlab import possible, tree
from recovery.crashlab.history import to_json
from recovery.crashlab.programs import Command

if TYPE_CHECKING:
    from recovery.crashlab.layers.task import Sighting
    from recovery.crashlab.numbers import ViolationNumbers
    from recovery.crashlab.spec import Spec

VIOLATIONS = "violations"
"""Where the directories lie, below a report."""

_PICKLE, _TOLD = "violation.pickle", "violation.json"
_REPRO = Path(__file__).with_name("repro_template.py")


@dataclass(frozen=True)
class Violation:
    """Everything about it."""

    spec: Spec
    sighting: Sighting
    tapes: tuple[bytes, ...]
    numbers: ViolationNumbers
    trace: str


def write(violation: Violation, place: Path) -> None:
    """The directory, whole or not at all; one of that name that was there is replaced."""
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
    tree.write_tree(violation.sighting.image, image)
    (place / "trace.txt").write_text(violation.trace, encoding="utf-8")
    for number, one in enumerate(violation.tapes):
        (place / f"tape-{number}").write_bytes(one)
    (place / _PICKLE).write_bytes(cloudpickle.dumps(violation))
    (place / _TOLD).write_text(json.dumps(_told(violation), indent=1) + "\n")
    (place / "repro.py").write_text(_repro(violation), encoding="utf-8")


def forget(places: Path) -> None:
    """Removes the violations that an earlier run has left there, and nothing else."""
    for told in places.glob(f"*/{_TOLD}"):
        shutil.rmtree(told.parent)


def load(place: Path) -> Violation:
    """The violation that was written there. Runs code that is in it: only for directories that one trusts.

    The store is imported from where it was then, behind all that this process would find by itself.
    """
    told = json.loads((place / _TOLD).read_text())
    sys.path += [path for path in told["path"] if path not in sys.path]
    violation: Violation = cloudpickle.loads((place / _PICKLE).read_bytes())
    return violation


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
        "path": _path(),
    }


def _path() -> list[str]:
    """Where modules are found here beyond what is installed."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    dynamic = {f"{place}/lib-dynload" for place in installed}
    return [path for path in sys.path if path not in installed | dynamic and not path.endswith(".zip")]


def _op(op: Any) -> list[Any]:
    return [op.kind, *map(to_json, op.args)]


def _repro(violation: Violation) -> str:
    recover = violation.spec.recover
    command = list(recover.arguments) if isinstance(recover, Command) else None
    pickled = b"" if command else cloudpickle.dumps(recover)
    must = [(key, writes[-1].value) for key, writes in possible.settled(violation.sighting.history)]
    return (
        _REPRO.read_text()
        .replace('"THE CAUSE"', repr(violation.numbers.cause))
        .replace("COMMAND: list[str] | None = None", f"COMMAND: list[str] | None = {command!r}")
        .replace("PATH: list[str] = []", f"PATH: list[str] = {_path()!r}")
        .replace('RECOVER = b""', f"RECOVER = {pickled!r}")
        .replace("MUST: list[tuple[object, object]] = []", f"MUST: list[tuple[object, object]] = {must!r}")
    )
