"""Measures how long `import storage` and `ledgerstore --help` take, without the start of Python itself.

The figures are processor time of the fastest round, because other programs may use the machine.
"""

from __future__ import annotations

import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage

ROUNDS = 15
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "import storage": [sys.executable, "-c", "import storage"],
    "ledgerstore --help": [sys.executable, "-c", "from recovery.shell.main import main; main()", "--help"],
}


def seconds(command: list[str]) -> float:
    """Run the command. Return its processor time in user and system mode."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - fixed commands
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def beyond_python(rounds: int = ROUNDS) -> dict[str, float]:
    """Return for each command the milliseconds beyond bare Python. The commands take turns."""
    laps = [{name: seconds(command) for name, command in COMMANDS.items()} for _ in range(rounds)]
    best = {name: min(lap[name] for lap in laps) for name in COMMANDS}
    return {name: 1000 * (best[name] - best["python"]) for name in COMMANDS if name != "python"}


def main() -> None:
    for name, milliseconds in beyond_python().items():
        print(f"{name:20} {milliseconds:6.1f} ms beyond bare Python")


if __name__ == "__main__":
    main()
