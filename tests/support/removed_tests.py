"""List the tests of an earlier list that no longer exist, by module and function: `removed_tests.py
before.txt`.

The list is the output of `pytest --collect-only -q -m ""`. Parameters are ignored, because a sweep may be
divided in another way. Exits with 1 if any test is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def names(lines: list[str]) -> set[str]:
    """Return module and function of each test."""
    return {line.partition("[")[0].strip() for line in lines if "::" in line}


def collected() -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", ""]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main(before: str) -> int:
    earlier, now = names(Path(before).read_text().splitlines()), names(collected())
    for name in sorted(earlier - now):
        print(f"gone  {name}")
    print(f"{len(earlier)} tests before, {len(now)} now, {len(earlier - now)} gone, {len(now - earlier)} new")
    return int(bool(earlier - now))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
