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
