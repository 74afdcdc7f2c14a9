"""Kill a process that writes to a store at random moments, and audit what it leaves each time.

    python tests/support/killed_stores.py [KILLS [SEED]]        as `make audit-kills` does

The process adds to ledgers, deletes, truncates and makes checkpoints, with logs so small that most
checkpoints complete one. A kill loses nothing, so that an audit must find nothing above information,
and a view must show the ledgers that an opening finds.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from recovery import open_store, open_view
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit
from storage.config import StoreConfig

_CONFIG = StoreConfig(
    memtable_size_max=64 << 10,
    entry_log_size_max=24 << 10,
    journal_size=128 << 10,
    entry_size_max=1 << 10,
    group_size_max=16 << 10,
    checkpoint_interval_s=0.02,
    idle_seal_s=0.01,
)
_LEDGERS = 12
_LIFE_S = 0.25
"""How long a writer lives at most after its first acknowledgement."""


@dataclass
class KillReport:
    """What audits and views said after the kills."""

    kills: int = 0
    complaints: list[str] = field(default_factory=list)


def kill_and_audit(root: Path, kills: int, dice: random.Random) -> KillReport:
    """Kill writers to one store, each of which continues what the last one left."""
    report = KillReport()
    for number in range(kills):
        _kill_a_writer(root, dice)
        report.kills += 1
        report.complaints += [f"kill {number}: {one}" for one in _complaints(root)]
    return report


def _kill_a_writer(root: Path, dice: random.Random) -> None:
    seed, life = dice.randrange(1 << 32), dice.random() * _LIFE_S
    reading, writing = os.pipe()
    writer = os.fork()
    if writer == 0:
        os.close(reading)
        _write(root, writing, random.Random(seed))
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        told.read(1)  # the store is open
        time.sleep(life)
        os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)


def _write(root: Path, told: int, dice: random.Random) -> NoReturn:
    """Write until the kill. An error ends the process too, and the next opening reports it."""
    try:
        with open_store(root, _CONFIG) as store:
            os.write(told, b".")
            while True:
                ledger = store.ledger(dice.randrange(_LEDGERS))
                match dice.randrange(12):
                    case 0:
                        ledger.delete()
                    case 1:
                        store.checkpoint()
                    case 2:
                        ledger.truncate(max(0, ledger.last_add_confirmed - 5))
                    case _:
                        size = dice.randrange(1, 900)
                        ledger.append_many([dice.randbytes(size) for _ in range(dice.randrange(1, 9))])
    finally:
        os._exit(1)


def _complaints(root: Path) -> list[str]:
    with TemporaryDirectory(prefix="killed-") as scratch:
        copy = Path(scratch) / "store"
        shutil.copytree(root, copy)
        found = run_audit(AuditRequest((str(copy),))).findings
        said = [
            f"{one.kind} {one.place} ledger {one.ledger_id}: {one.detail}" for one in found if one.is_wrong
        ]
        with open_view(copy) as view:
            shown = {one: view.last_id(one) for one in view.ledgers()}
        with open_store(copy, _CONFIG) as store:
            opened = {one: store.ledger(one).last_entry_id for one in store.ledgers()}
    if shown != opened:
        said.append(f"a view shows {shown}, an opening finds {opened}")
    return said


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    with TemporaryDirectory(prefix="killed-stores-") as scratch:
        report = kill_and_audit(Path(scratch) / "store", kills, random.Random(seed))
    for one in report.complaints:
        print(one)
    print(f"{report.kills} kills (seed {seed}), {len(report.complaints)} complaints")
    sys.exit(bool(report.complaints))


if __name__ == "__main__":
    main()
