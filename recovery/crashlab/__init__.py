"""The crash laboratory: crash a store in many ways, and report which acknowledged writes were lost.

A store in real files, in any language, runs in processes of its own (docs/crashlab.md):

    def workload(root, ctx):
        with ctx.doing("add", "key", b"value"):
            store.put(...)

    CrashLab(workload, recover).run(budget="60s").assert_ok()

A store that does its I/O through `storage.disk.files` can run in this process, on a simulated disk:

    disk = SimulatedDisk(sector_size=4096)
    disk.watch(lambda operation: states.append(disk.copy()))
    workload(disk.root())
    for state in states:
        for fate in state.fates():
            after = state.copy()
            after.power_cut(fate)
            check(after.root())
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.crashlab.judge.outcome import ObservedState, UnreadableValue
    from recovery.crashlab.lab import CrashLab, LabProgress, LabReport
    from recovery.crashlab.model.disk import SimulatedDisk
    from recovery.crashlab.model.disk_errors import (
        FailedSync,
        Fault,
        Lasting,
        Pages,
        Refused,
        ShortWrite,
        When,
    )
    from recovery.crashlab.model.fates import Exactly, Fate, KeepAll, LoseAll, RandomFate, Tearing
    from recovery.crashlab.model.machine import DeadHandle, Stopped
    from recovery.crashlab.model.operations import Operation, Verb
    from recovery.crashlab.record.history import Ctx, History, Op
    from recovery.crashlab.run.spec import Command
    from recovery.crashlab.run.workers import LabError

__all__ = [
    "Command",
    "CrashLab",
    "Ctx",
    "DeadHandle",
    "Exactly",
    "FailedSync",
    "Fate",
    "Fault",
    "History",
    "KeepAll",
    "LabError",
    "LabProgress",
    "LabReport",
    "Lasting",
    "LoseAll",
    "ObservedState",
    "Op",
    "Operation",
    "Pages",
    "RandomFate",
    "Refused",
    "ShortWrite",
    "SimulatedDisk",
    "Stopped",
    "Tearing",
    "UnreadableValue",
    "Verb",
    "When",
]

_HOMES = {
    "run.workers": "LabError",
    "model.disk": "SimulatedDisk",
    "model.fates": "Exactly Fate KeepAll LoseAll RandomFate Tearing",
    "model.disk_errors": "FailedSync Fault Lasting Pages Refused ShortWrite When",
    "record.history": "Ctx History Op",
    "lab": "CrashLab LabReport LabProgress",
    "model.machine": "DeadHandle Stopped",
    "run.spec": "Command",
    "judge.outcome": "ObservedState UnreadableValue",
    "model.operations": "Operation Verb",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    # A module is imported when one of its names is first used, so that commands start quickly.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
