"""Figures of several rounds, and the bars that they have to reach, for the benchmarks of the cluster."""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Figures = dict[str, list[float]]
"""By name: the figure of each round."""


class SpeedBar(NamedTuple):
    """A figure that has to be reached."""

    name: str
    figure: float
    bar: float | str
    is_met: bool


def print_medians(found: Figures) -> None:
    for name, figures in found.items():
        print(f"{name:48}{median(figures):12,.1f}   ({min(figures):,.1f} to {max(figures):,.1f})")


def judge(rounds: Mapping[str, Any], bars: Sequence[SpeedBar], path: Path | None) -> int:
    """Print the bars, write everything to the path if there is one, and return the exit code."""
    for one in bars:
        print(f"{one.name:58}{one.figure:9.2f} {one.bar}{'' if one.is_met else '   MISSED'}")
    if path is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"rounds": rounds, "bars": [one._asdict() for one in bars]}, indent=1))
    return 0 if all(one.is_met for one in bars) else 1
