"""Run one layer of the crash laboratory on our own store until it sees a violation.

    python tests/support/run_lab_layer.py model

Exit with 1 and print the violation in the first line, or exit with 0 and print nothing."""

from __future__ import annotations

import sys

from recovery.crashlab import LabError, LabProgress
from recovery.proving.lab import ledgerstore_lab

BUDGET_S = {"model": 15.0, "kill": 6.0, "errors": 15.0, "nested": 6.0, "rot": 6.0}


class ViolationSeen(Exception):
    """Ends the run, because a violation was seen."""


def _listen(progress: LabProgress) -> None:
    if progress.first:
        raise ViolationSeen(progress.first)


def main(layer: str) -> int:
    try:
        ledgerstore_lab().run([layer], BUDGET_S[layer], jobs=1, progress=_listen)
    except (ViolationSeen, LabError) as why:
        print(f"{why}".strip().splitlines()[0])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
