"""A crash of the model, made again from its tapes: the platter with all that waited, as it was before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.crashlab.playback import Playback
from recovery.crashlab.tape import Call, Flag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.crashlab.layers.task import Crash
    from recovery.crashlab.platter import Platter
    from recovery.crashlab.playback import Ignored
    from recovery.crashlab.profile import Profile
    from recovery.crashlab.tape import Event


def before(
    crashes: Sequence[Crash], tapes: Sequence[Sequence[Event]], profile: Profile, ignored: Ignored
) -> Platter:
    """The platter in front of the last of these crashes; one tape for each."""
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
            playback.play(event)  # it crashed in the middle of a durable write
