"""Play random schedules of clients, bookies, network and metadata, and check the invariants.

    cluster_sim.py                    60,000 schedules and 20,000 with deferred syncs, as `make cluster-sim`
    cluster_sim.py run N [FIRST]      N schedules, from this seed on
    cluster_sim.py replay SEED        one schedule again, line by line
    cluster_sim.py minimise SEED      the same, after it was made smaller

Every violation is shown with its seed. The run fails if there is one."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from functools import partial

from recovery.clusterlab.deferred import DeferredSchedule
from recovery.clusterlab.explorer import Failure, explore, minimise, play, trace
from recovery.clusterlab.workload import Schedule

SCHEDULES = 60_000
_PIECE = 500
_SHOWN_MAX = 10


def _play_piece(kind: type[Schedule], first: int) -> tuple[list[Failure], float]:
    """Play some schedules, and return the violations and the seconds of processor time."""
    began = time.process_time()
    return list(explore(range(first, first + _PIECE), kind)), time.process_time() - began


def run(count: int, first: int, kind: type[Schedule] = Schedule) -> int:
    """Play schedules on all processors, and return the exit code."""
    failures: list[Failure] = []
    took = 0.0
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        for found, seconds in pool.imap(partial(_play_piece, kind), range(first, first + count, _PIECE)):
            failures += found
            took += seconds
    for failure in failures[:_SHOWN_MAX]:
        print(f"seed {failure.seed}: {failure.text}")
    print(
        f"cluster-sim: {count:,} schedules ({kind.__name__}), {len(failures)} violations, "
        f"{count / took:,.0f} in a second of processor time"
    )
    return 1 if failures else 0


def show(failure: Failure | None) -> int:
    """Print a schedule, and return the exit code."""
    if failure is None:
        print("no violation")
        return 0
    print("\n".join(trace(failure)))
    return 1


def main(words: list[str]) -> int:
    match words:
        case []:
            return run(SCHEDULES, 0) or run(SCHEDULES // 3, 0, DeferredSchedule)
        case ["run", count]:
            return run(int(count), 0)
        case ["run", count, first]:
            return run(int(count), int(first))
        case ["replay", seed]:
            return show(play(int(seed)))
        case ["minimise", seed]:
            failure = play(int(seed))
            return show(None if failure is None else minimise(failure))
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
