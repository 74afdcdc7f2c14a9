"""A simulated crash, and how to rebuild the platter before it from the recorded tapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.crashlab.record.playback import Playback
from recovery.crashlab.record.tape import Call, Flag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recovery.crashlab.model.pending import Survivors
    from recovery.crashlab.model.platter import Platter
    from recovery.crashlab.model.profile import Profile
    from recovery.crashlab.model.real_tree import IgnoredPaths
    from recovery.crashlab.record.tape import Event


@dataclass(frozen=True, slots=True)
class Crash:
    """A simulated crash: its position on the tapes, and what survives it.

    The first tape is that of a workload. Each further tape is that of a recovery that was crashed too. It is
    played onto what the crash before it left, or, after a kill, onto everything that was there.
    """

    at: int
    """The index of the event before which the crash happens."""
    survivors: Survivors | None
    """None for a kill, because a kill loses nothing yet."""
    nodes: Mapping[int, int] = field(default_factory=dict)
    """Maps the inodes of the next tape to the nodes of what this crash left."""


def platter_before_crash(
    crashes: Sequence[Crash], tapes: Sequence[Sequence[Event]], profile: Profile, ignored: IgnoredPaths
) -> Platter:
    """Return the platter before the last of these crashes. There is one tape for each crash."""
    playback = Playback(profile, ignored)
    for crash, events in zip(crashes, tapes, strict=True):
        _play_until(playback, events, crash.at)
        if crash is crashes[-1]:
            break
        platter = playback.platter
        if crash.survivors is not None:
            platter = platter.after_cut(crash.survivors)
        playback = Playback(profile, ignored, platter.copy(), crash.nodes)
    return playback.platter


def _play_until(playback: Playback, events: Sequence[Event], index: int) -> None:
    playback.play_all(events[:index])
    if index < len(events):
        event = events[index]
        if event.call is Call.WRITE and event.flags & Flag.DURABLE:
            playback.play(event)  # the crash is in the middle of a durable write
