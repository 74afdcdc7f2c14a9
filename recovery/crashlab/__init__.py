"""The crash laboratory: a simulated disk, and what power cuts, kills and errors may do to it.

disk = SimulatedDisk(sector_size=4096)
disk.watch(lambda operation: states.append(disk.copy()))
workload(disk.root())
for state in states:
    for fate in state.fates():
        after = state.copy()
        after.power_cut(fate)
        check(after.root())
"""

from recovery.crashlab.disk import SimulatedDisk
from recovery.crashlab.fates import Exactly, Fate, KeepAll, LoseAll, RandomFate, Tearing
from recovery.crashlab.faults import FailedSync, Fault, Lasting, Pages, Refused, ShortWrite, When
from recovery.crashlab.machine import DeadHandle, Stopped
from recovery.crashlab.trace import Operation, Verb

__all__ = [
    "DeadHandle",
    "Exactly",
    "FailedSync",
    "Fate",
    "Fault",
    "KeepAll",
    "Lasting",
    "LoseAll",
    "Operation",
    "Pages",
    "RandomFate",
    "Refused",
    "ShortWrite",
    "SimulatedDisk",
    "Stopped",
    "Tearing",
    "Verb",
    "When",
]
