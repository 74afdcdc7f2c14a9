"""Many schedules in several processes, and the figures of a run."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.clusterlab.autorecovery import AutoRecoverySchedule
from recovery.clusterlab.deferred import DeferredSchedule
from recovery.clusterlab.explorer import ViolatingSchedule, explore
from recovery.clusterlab.small_worlds import LARGER_WORLDS, SMALL_WORLDS, explore_all
from recovery.clusterlab.topics.schedule import TopicSchedule
from recovery.clusterlab.workload import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.clusterlab.small_worlds import SmallWorldResult

_PIECE = 500


@dataclass(slots=True)
class CampaignFigures:
    """The figures of a run."""

    first_seed: int
    schedules: int = 0
    cpu_seconds: float = 0.0
    failures: list[ViolatingSchedule] = field(default_factory=list)
    worlds: dict[str, SmallWorldResult] = field(default_factory=dict)

    @property
    def violations(self) -> int:
        return len(self.failures) + sum(bool(one.violation) for one in self.worlds.values())

    @property
    def schedules_per_second(self) -> float:
        """Schedules in a second of processor time."""
        return self.schedules / self.cpu_seconds if self.cpu_seconds else 0.0


KINDS: Mapping[str, type[Schedule]] = {
    "plain": Schedule,
    "deferred": DeferredSchedule,
    "autorecovery": AutoRecoverySchedule,
    "topics": TopicSchedule,
}
"""The kinds of schedules, by name."""


def play_all(figures: CampaignFigures, count: int, jobs: int, kind: str = "plain") -> Iterator[int]:
    """Play so many random schedules, and yield how many have been played until now."""
    firsts = range(figures.first_seed, figures.first_seed + count, _PIECE)
    end = figures.first_seed + count
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        pieces = [(first, min(first + _PIECE, end), kind) for first in firsts]
        for played, failures, seconds in pool.imap(_play_piece, pieces):
            figures.schedules += played
            figures.failures += failures
            figures.cpu_seconds += seconds
            yield figures.schedules


def _play_piece(piece: tuple[int, int, str]) -> tuple[int, list[ViolatingSchedule], float]:
    first, end, kind = piece
    began = time.process_time()
    failures = list(explore(range(first, end), KINDS[kind]))
    return end - first, failures, time.process_time() - began


def play_worlds(figures: CampaignFigures, names: list[str], jobs: int) -> Iterator[str]:
    """Play every order of these small worlds, and yield the name of each when it is done."""
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for name, result in pool.imap(_play_world, names):
            figures.worlds[name] = result
            yield name


def _play_world(name: str) -> tuple[str, SmallWorldResult]:
    return name, explore_all({**SMALL_WORLDS, **LARGER_WORLDS}[name])
