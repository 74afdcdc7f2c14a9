"""Asks one layer of the crash laboratory about our own store, until it sees a violation.

    python tests/support/lab_asker.py model

Ends with 1 and the violation in its first line, or with 0 and nothing.
"""

from __future__ import annotations

import sys

from recovery.crashlab import LabError, Progress
from recovery.proving.lab import ledgerstore_lab

BUDGET_S = {"model": 15.0, "kill": 6.0, "errors": 15.0, "nested": 6.0, "rot": 6.0}


class Seen(Exception):
    """Enough: the store is broken."""


def _listen(progress: Progress) -> None:
    if progress.first:
        raise Seen(progress.first)


def main(layer: str) -> int:
    try:
        ledgerstore_lab().run([layer], BUDGET_S[layer], jobs=1, progress=_listen)
    except (Seen, LabError) as why:
        print(f"{why}".strip().splitlines()[0])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
