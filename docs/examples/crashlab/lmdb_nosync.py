"""LMDB with `sync=False`: a power cut leaves a tree whose pages are from different times.

    ledgerstore crash run docs/examples/crashlab/lmdb_nosync.py:lab
    python docs/examples/crashlab/lmdb_nosync.py

`in_place` syncs every commit, and creates the environment in its final place, as most programs do. Its
commits are safe, but its creation is not: a power cut between the writes of the two meta pages leaves a
file that LMDB never opens, and the directory with its name is never synced. An environment that is created
elsewhere, synced and then renamed has neither problem.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import lmdb

from recovery.crashlab import CrashLab, Ctx

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 1 << 20


def work(env: lmdb.Environment, ctx: Ctx) -> None:
    for number in range(6):
        key, tea = b"cup %d" % number, b"tea %d " % number * 300
        with ctx.doing("add", key, tea), env.begin(write=True) as change:
            change.put(key, tea)


def unsynced(root: Path, ctx: Ctx) -> None:
    with lmdb.open(str(root), map_size=SIZE, sync=False) as env:
        work(env, ctx)


def synced(root: Path, ctx: Ctx) -> None:
    with lmdb.open(str(root), map_size=SIZE) as env:
        work(env, ctx)


def recover(root: Path) -> dict[bytes, bytes]:
    with lmdb.open(str(root), map_size=SIZE) as env, env.begin() as look:
        return dict(look.cursor())


lab = CrashLab(unsynced, recover, ignore=["lock.mdb"], name="LMDB, sync=False")
in_place = CrashLab(synced, recover, ignore=["lock.mdb"], name="LMDB, made in place")

if __name__ == "__main__":
    report = lab.run(layers=sys.argv[1:] or ["model"])
    for violation in report.violations:
        print(violation.cause)
    sys.exit(1 if report.violations else 0)
