"""How long `import storage` and `ledgerstore --help` take beyond starting Python itself.

Processor time, and of each command its quickest round: the machine may be busy, and what others do to it is
not what starting costs.
"""

from __future__ import annotations

import subprocess
import sys
from resource import RUSAGE_CHILDREN, getrusage

ROUNDS = 15
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "import storage": [sys.executable, "-c", "import storage"],
    "ledgerstore --help": [sys.executable, "-m", "recovery.shell.main", "--help"],
}


def seconds(command: list[str]) -> float:
    """One run of the command: what it has computed, and the system for it."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own commands
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def beyond_python(rounds: int = ROUNDS) -> dict[str, float]:
    """Milliseconds beyond bare Python, by command; the rounds take turns."""
    laps = [{name: seconds(command) for name, command in COMMANDS.items()} for _ in range(rounds)]
    best = {name: min(lap[name] for lap in laps) for name in COMMANDS}
    return {name: 1000 * (best[name] - best["python"]) for name in COMMANDS if name != "python"}


def main() -> None:
    for name, milliseconds in beyond_python().items():
        print(f"{name:20} {milliseconds:6.1f} ms beyond bare Python")


if __name__ == "__main__":
    main()
