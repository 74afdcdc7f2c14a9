"""The process that writes until it is killed: `python -m recovery.demo.writer PATH ENTRIES SIZE LEDGERS`.

Each line of its output is an acknowledgement: ledger, first entry, end. The line is written after the store
has acknowledged the entries, and stays in the pipe after a kill.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from recovery.demo.workload import Workload
from recovery.opening.open_store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable


def write(path: str, workload: Workload, acknowledge: Callable[[int, range], None]) -> None:
    """Write without end; call `acknowledge` for each batch that a crash can no longer lose."""
    with open_store(path, workload.config) as store:
        ledgers = {ledger_id: store.ledger(ledger_id) for ledger_id in workload.ledger_ids}
        ends = dict.fromkeys(ledgers, 0)
        for ledger_id, count in workload.batches():
            first = ends[ledger_id]
            payloads = [workload.payload(ledger_id, entry) for entry in range(first, first + count)]
            ledger = ledgers[ledger_id]
            if count == 1:
                added = ledger.append(payloads[0])
                ids = range(added, added + 1)
            else:
                ids = ledger.append_many(payloads)
            acknowledge(ledger_id, ids)
            ends[ledger_id] = ids.stop


def _tell(ledger_id: int, ids: range) -> None:
    # One small write, which a pipe takes as a whole, so that lines are never mixed up.
    os.write(1, b"%d %d %d\n" % (ledger_id, ids.start, ids.stop))


def main(arguments: list[str]) -> None:
    # Ignore interrupts, which the terminal sends to both processes: the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path, entries, size, ledgers = arguments
    try:
        write(path, Workload(int(entries), int(size), int(ledgers)), _tell)
    except BrokenPipeError:
        # The parent is gone.
        return


if __name__ == "__main__":
    main(sys.argv[1:])
