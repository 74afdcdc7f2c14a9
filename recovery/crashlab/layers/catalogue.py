"""All layers: name, weight, whether the layer can run here, and its task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.crashlab.layers.cut import CutTask, why_none
from recovery.crashlab.layers.errors import ErrorsTask
from recovery.crashlab.layers.kill import KillTask
from recovery.crashlab.layers.model import ModelTask
from recovery.crashlab.layers.nested import NestedTask
from recovery.crashlab.layers.rot import RotTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.crashlab.record.recording import Recording
    from recovery.crashlab.run.task import Message, WorkerTask, WorkShare


@dataclass(frozen=True, slots=True)
class Layer:
    """One way to crash a store."""

    name: str
    about: str
    weight: float
    """Its share of a time budget, relative to the other layers."""
    make: Callable[[tuple[Recording, ...], WorkShare], WorkerTask[Message]]
    why_not: Callable[[], str] = lambda: ""
    """Returns why the layer cannot run here."""
    counts: str = ""
    """The most important of its counts."""


# The model layer is last, because it has no end and uses the time that is left.
LAYERS = {
    layer.name: layer
    for layer in (
        Layer("kill", "SIGKILL around every call", 0.365, KillTask, counts="kills"),
        Layer("errors", "every call fails", 0.175, ErrorsTask, counts="error points"),
        Layer("nested", "crashes inside recoveries", 0.14, NestedTask, counts="states of depth 2"),
        Layer("rot", "damaged files", 0.045, RotTask, counts="rot mutants"),
        Layer("cut", "power cuts of real file systems", 0.045, CutTask, why_none, counts="real cuts"),
        Layer("model", "every state that a power cut may leave", 0.23, ModelTask, counts="distinct images"),
    )
}
