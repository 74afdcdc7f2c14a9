"""The crash laboratory: crashes a store in every way that matters, and says what it lost.

A store in real files, in whatever language, run in processes of its own (docs/crashlab.md):

    def workload(root, ctx):
        with ctx.doing("add", "key", b"value"):
            store.put(...)

    CrashLab(workload, recover).run(budget="60s").assert_ok()

A store that asks for its disk through `storage.files`, on a simulated one, in this process:

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
    from recovery.crashlab.crew import LabError
    from recovery.crashlab.disk import SimulatedDisk
    from recovery.crashlab.fates import Exactly, Fate, KeepAll, LoseAll, RandomFate, Tearing
    from recovery.crashlab.faults import FailedSync, Fault, Lasting, Pages, Refused, ShortWrite, When
    from recovery.crashlab.history import Ctx, History, Op
    from recovery.crashlab.lab import CrashLab, LabReport, Progress
    from recovery.crashlab.machine import DeadHandle, Stopped
    from recovery.crashlab.programs import Command
    from recovery.crashlab.shown import Shown, Unreadable
    from recovery.crashlab.trace import Operation, Verb

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
    "LabReport",
    "Lasting",
    "LoseAll",
    "Op",
    "Operation",
    "Pages",
    "Progress",
    "RandomFate",
    "Refused",
    "ShortWrite",
    "Shown",
    "SimulatedDisk",
    "Stopped",
    "Tearing",
    "Unreadable",
    "Verb",
    "When",
]

_HOMES = {
    "crew": "LabError",
    "disk": "SimulatedDisk",
    "fates": "Exactly Fate KeepAll LoseAll RandomFate Tearing",
    "faults": "FailedSync Fault Lasting Pages Refused ShortWrite When",
    "history": "Ctx History Op",
    "lab": "CrashLab LabReport Progress",
    "machine": "DeadHandle Stopped",
    "programs": "Command",
    "shown": "Shown Unreadable",
    "trace": "Operation Verb",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    # Looked up when it is first used: our plugin is loaded by every pytest, also where nothing is crashed.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
