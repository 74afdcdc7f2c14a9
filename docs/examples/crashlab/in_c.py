"""A store in another language: a log in C (`cups.c`), started as a program of its own.

    ledgerstore crash run docs/examples/crashlab/in_c.py:lab
    python docs/examples/crashlab/in_c.py

The program writes its marks to the descriptor that CRASHLAB_MARKS names, one line of JSON each, and prints
its entries as JSON. `forgetful` is the same source without its syncs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from recovery.crashlab import Command, CrashLab, LabError

SOURCE = Path(__file__).parent / "cups.c"


def built(*flags: str) -> str:
    """Compile the program in a directory of its own."""
    if not shutil.which("cc"):
        raise LabError("there is no C compiler (cc) to build the store with")
    program = Path(tempfile.mkdtemp(prefix="cups-")) / "cups"
    subprocess.run(["cc", "-O2", "-Wall", *flags, "-o", program, SOURCE], check=True)
    return str(program)


def in_the_lab(program: str, name: str) -> CrashLab:
    return CrashLab(
        Command([program, "work", "{root}"]),
        Command([program, "show", "{root}"]),
        name=name,
    )


def lab() -> CrashLab:
    return in_the_lab(built(), "a log in C")


def forgetful() -> CrashLab:
    return in_the_lab(built("-DFORGETFUL"), "a log in C that syncs nothing")


if __name__ == "__main__":
    report = lab().run(layers=sys.argv[1:] or ["model", "kill", "errors", "nested"])
    for violation in report.violations:
        print(violation.cause)
    sys.exit(1 if report.violations else 0)
