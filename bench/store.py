"""How fast a store is: adds against the raw disk, replay, and opening. Prints one table.

python bench/store.py [--rounds N] [--json FILE] [--strict] [--only SCENARIO ...]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import adding
import reopening
from machine import busy, machine
from report import row, table
from rich.console import Console
from scratch import scratch
from sizes import TINY, Sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from result import Result

SCENARIOS: dict[str, Callable[[Path, Sizes], Result]] = {
    "append": adding.one_by_one,
    "batch": adding.in_batches,
    "batch-checkpoints": adding.beside_checkpoints,
    "replay": reopening.replay,
    "memory": reopening.replay_memory,
    "reopen": reopening.reopen,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the scenarios that were asked for; 1 only if a bar is missed that was to be kept strictly."""
    asked = _parser().parse_args(arguments)
    sizes = replace(TINY if asked.tiny else Sizes(), **({"rounds": asked.rounds} if asked.rounds else {}))
    before, warning = machine(), busy()
    results = list(_run(asked.only, sizes))
    # Into a file or a pipe a row is a line, however long.
    Console(width=None if sys.stdout.isatty() else 120).print(table(results, warning))
    if asked.json:
        said = {"machine": before, "settings": asdict(sizes), "results": [row(one) for one in results]}
        asked.json.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    return 1 if asked.strict and any(one.is_met is False for one in results) else 0


def _run(names: Sequence[str], sizes: Sizes) -> Iterator[Result]:
    for name in names:
        print(f"{name} …", file=sys.stderr)
        with scratch(Path.cwd()) as place:
            yield SCENARIOS[name](place, sizes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="How fast a store is, against the raw disk.")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=[*SCENARIOS], help="some scenarios")
    parser.add_argument("--rounds", type=int, help="how often each is measured; five or more say something")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every round, the machine and the sizes")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a bar is missed")
    parser.add_argument("--tiny", action="store_true", help="only to see that it works")
    return parser


if __name__ == "__main__":
    sys.exit(main())
