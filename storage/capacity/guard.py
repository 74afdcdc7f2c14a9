"""The owner of all decisions about a disk that is full, or nearly so: which work goes on.

    free space         adds                        other work, which finishes or frees something
    above the limit    accepted                    goes on
    below the limit    refused, but recoveries'    goes on
    none               refused                     removes journal backups, then gives up the reserve
    no reserve         refused                     goes on with the space that the reserve has left

The other work is fences, confirmations, deletes, truncations, checkpoints, collections and openings.

Adds are accepted again when the reserve is whole and twice the limit is free, so that they do not begin and
end at each write. The space of the file system is read at each new journal, checkpoint and collection, and
each second while adds are refused, but never by an add.
"""

from __future__ import annotations

import enum
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from storage.disk.files import DiskSpace
from storage.errors import NO_SPACE
from storage.runtime.events import LOG
from storage.runtime.store_state import LowSpace, NoReserve
from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from storage.capacity.reserve import Reserve
    from storage.disk.files import Directory
    from storage.runtime.store_state import Refusal, StoreState
    from storage.runtime.worker import Pause

POLL_S = 1.0
"""How often the space is read while adds are refused."""

RETRY_S = 10.0
"""The pause after an error while the reserve was being filled. A quota can refuse what looks free."""

_MIB = 1 << 20
_SLICE = 8 * _MIB
"""The most bytes that a collection moves before it commits."""
_OPENING_SHARE = 4
"""The part of the reserve that only an opening may give up."""
_RESERVE_MIN = 16 * _MIB
_RESERVE_BASE = 2 * _SLICE + 4 * _MIB
_RESERVE_SHARE = 16
"""By default the reserve takes at most this part of a small file system."""
_MIN_FREE_SHARE = 10
_RESUME_MORE = 0.05


class Need(enum.Enum):
    """The kinds of work, by the means that they may use to find space."""

    ADDS = "takes space, and is refused when there is none"
    FINISHING = "frees space, or finishes what was begun: it may have the reserve"


@dataclass(frozen=True, slots=True)
class SpaceLimits:
    """When adds are refused, and how large the reserve is. Shares are of the size of the file system."""

    min_free: int
    """Adds are refused if less is free."""
    is_min_free_given: bool = True
    """Otherwise it is a default, which a small file system reduces."""
    reserve: int | None = 0
    """The size of the reserve: 0 for none, `None` for the default."""
    usage_max: float | None = None
    """Adds are refused if a larger share is used."""
    usage_resume: float | None = None
    """They are accepted again if no larger share is used."""
    usage_warn: float | None = None
    """Space counts as low if a larger share is used."""

    def least(self, space: DiskSpace) -> int:
        """Return the least free space with which adds go on."""
        share = 0 if self.usage_max is None else int((1 - self.usage_max) * space.size)
        return max(self._min_free(space), share)

    def resume(self, space: DiskSpace) -> int:
        """Return the free space with which refused adds are accepted again."""
        by_share = 0
        if self.usage_max is not None:
            # Twice what must be free, but of a low limit no more than a twentieth above it.
            before = 1 - self.usage_max
            unused = 1 - self.usage_resume if self.usage_resume else before + min(before, _RESUME_MORE)
            by_share = int(unused * space.size)
        return max(2 * self._min_free(space), by_share, self.least(space))

    def low(self, space: DiskSpace) -> int:
        """Return the free space below which space is low, although adds go on."""
        share = 0 if self.usage_warn is None else int((1 - self.usage_warn) * space.size)
        return max(self.resume(space), share)

    def reserve_size(self, space: DiskSpace, index_bytes: int) -> int:
        """Return the size that the reserve should have."""
        if self.reserve is not None:
            return self.reserve
        wanted = max(_RESERVE_MIN, _RESERVE_BASE + index_bytes * 3 // 100)
        return min(wanted, space.size // _RESERVE_SHARE)

    def _min_free(self, space: DiskSpace) -> int:
        return self.min_free if self.is_min_free_given else min(self.min_free, space.size // _MIN_FREE_SHARE)


class Trial:
    """One attempt at an operation, which is repeated once there is room for it.

    Only for an operation that writes new files when it is repeated: a sync that has failed is never repeated
    on the same file.
    """

    def __init__(self, room: RoomMaker, need: Need) -> None:
        self._room = room
        self._need = need
        self._rounds = room.rounds

    def may_repeat(self, error: OSError) -> bool:
        """Make room if the error says that there is none; return whether to try again."""
        may_repeat = self._room.may_repeat(error, self._need, self._rounds)
        self._rounds = self._room.rounds
        return may_repeat


class RoomMaker(Protocol):
    """Makes room on a full disk. For operations on a hot path, which begin no `Trial`."""

    rounds: int
    """How often room was made. An operation reads it before it begins."""

    def may_repeat(self, error: OSError, need: Need, rounds: int) -> bool:
        """Make room if the error says that there is none, unless it was made since `rounds` was read.

        Return whether to try again.
        """


class _NoRoom:
    """Makes no room. For a view of a store, which writes to memory only."""

    rounds = 0

    def may_repeat(self, error: OSError, need: Need, rounds: int) -> bool:  # noqa: ARG002 - as in `RoomMaker`
        return False


NO_ROOM = _NoRoom()


class SpaceGuard:
    """The one owner of these decisions in an open store. Any thread may call; one worker calls `step`."""

    def __init__(
        self,
        directory: Directory,
        reserve: Reserve,
        opening_reserve: Reserve,
        limits: SpaceLimits,
        store_state: StoreState,
        free_backups: Callable[[], bool],
        index_bytes: Callable[[], int],
        lock: AbstractContextManager[object],
    ) -> None:
        """`free_backups` removes the journals that no opening needs, and returns whether there were any."""
        self._reserve = reserve
        # First, because without it the next opening may be refused.
        self._parts = (opening_reserve, reserve)
        self.wake: Callable[[], None] = _do_nothing
        """Wakes the worker that calls `step`."""
        self.on_low: Callable[[], None] = _do_nothing
        """Called when space becomes low, with the lock held."""
        # field                   written by        under     read by
        self.is_low = False  #    any thread        the lock  checkpoints and collections, no lock
        """Whether space is so low that what can be freed should be freed now."""
        self.rounds = 0  #        any thread        the lock  any thread, no lock
        """How often room was made."""
        self._last_space = DiskSpace(0, 0)  # any thread  the lock  the same
        self._gave_up = False  #  any thread        the lock  the same
        """Whether the reserve was given up, or could not be filled at the opening."""
        self._is_reserve_wrong = False  # begin    -         the same
        self._directory = directory
        self._limits = limits
        self._store_state = store_state
        self._free_backups = free_backups
        self._index_bytes = index_bytes
        self._lock = lock

    @property
    def reserve_bytes(self) -> int:
        """The space that can be given up."""
        return sum(part.size for part in self._parts)

    @property
    def needs_step(self) -> bool:
        """Whether the reserve is to be filled or removed, or adds are refused."""
        return self._is_reserve_wrong or self._store_state.refusal is not None

    @property
    def is_refusing(self) -> bool:
        """Whether adds are refused for lack of space."""
        return self._store_state.refusal is not None

    def trial(self, need: Need) -> Trial:
        """Begin an operation that may find the disk full."""
        return Trial(self, need)

    def may_repeat(self, error: OSError, need: Need, rounds: int) -> bool:
        """Make room if the error says that there is none, unless it was made since `rounds` was read.

        Return whether to try again.
        """
        if error.errno not in NO_SPACE:
            return False
        with self._lock:
            if rounds == self.rounds and self._make_room(need):
                self.rounds += 1
            return self.rounds != rounds

    def _make_room(self, need: Need) -> bool:
        with suppress(OSError):  # a journal that stays only takes space
            if self._free_backups():
                return True
        if need is Need.ADDS or not (self._reserve.is_there or self._reserve.is_filling):
            return False
        # Adds are refused first, because one of them could take the space at once.
        self._gave_up = True
        self._decide(self._space())
        return self._reserve.give_up()

    # ── limits ───────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Read the space for the first time. Refuse adds if the missing part of the reserve has no room."""
        with self._lock:
            space = self._space()
            if self._limits.reserve == 0:
                self._is_reserve_wrong = self.reserve_bytes > 0
            elif not all(part.is_there for part in self._parts):
                missing = sum(size for _, size in self._missing(space))
                self._gave_up = space.free < 2 * missing
                self._is_reserve_wrong = missing > 0
            self._decide(space)

    def free(self) -> int:
        """Return how many bytes are free."""
        return self._space().free

    def check(self) -> None:
        """Read the free space, and refuse adds or accept them again. Called at each new journal."""
        with self._lock:
            self._decide(self._space())

    def review(self) -> None:
        """Do the same as `check`, and wake the worker if the reserve is too small for the index by now.

        Called at each checkpoint.
        """
        with self._lock:
            space = self._space()
            self._decide(space)
            if self._limits.reserve != 0 and self.reserve_bytes and self._missing(space):
                self.wake()

    def _decide(self, space: DiskSpace) -> None:
        limits, before = self._limits, self._store_state.refusal
        self._last_space = space
        was_low, self.is_low = self.is_low, self._gave_up or space.free < limits.low(space)
        if self.is_low and not was_low:
            self.on_low()
        least = limits.least(space) if before is None else limits.resume(space)
        refusal: Refusal | None = None
        if self._gave_up:
            refusal = NoReserve(
                _words_without_reserve(space, self._limits.reserve_size(space, self._index_bytes()))
            )
        elif space.free < least:
            refusal = LowSpace(_words_below(space, limits))
        if type(refusal) is type(before):
            return  # the numbers in its words may have changed, and nothing else
        self._store_state.refuse_adds(refusal)
        if refusal is not None:
            self.wake()

    def _space(self) -> DiskSpace:
        try:
            return self._directory.space()
        except OSError:
            return self._last_space  # only a reading: an operation that matters meets the error itself

    def _missing(self, space: DiskSpace) -> list[tuple[Reserve, int]]:
        """Return the parts of the reserve that are missing or much too small, with the sizes they should
        have."""
        wanted = self._limits.reserve_size(space, self._index_bytes())
        for_opening = wanted // _OPENING_SHARE
        sizes = zip(self._parts, (for_opening, wanted - for_opening), strict=True)
        return [(part, size) for part, size in sizes if part.size < size // 2 or part.is_filling]

    # ── the worker's part ────────────────────────────────────────────────────────────────────────────

    def step(self) -> Pause:
        """Fill a part of the reserve if there is room for it twice, or see whether adds can go on."""
        if self._limits.reserve == 0:
            for part in self._parts:
                part.give_up()  # it is switched off
        space = self._space()
        missing = self._missing(space)
        if missing:
            part, size = missing[0]
            if part.is_filling or space.free >= 2 * sum(size for _, size in missing):
                return self._fill(part, size)
        with self._lock:
            self._gave_up = self._gave_up and bool(missing)
            self._decide(space)
        if self.is_refusing:
            return POLL_S
        return RETRY_S if missing else None

    def _fill(self, part: Reserve, size: int) -> Pause:
        try:
            if part.fill(size):
                part.publish()
        except OSError as error:
            if part.is_name_unknown:
                raise
            if error.errno not in NO_SPACE:
                LOG.warning("%s: the reserve was not filled: %s", self._store_state.path, error)
            return RETRY_S
        return AT_ONCE

    def discard_drafts(self) -> None:
        """Remove the drafts of the reserve, at the end of a run."""
        for part in self._parts:
            part.discard_draft()

    def close(self) -> None:
        """Close the files. Writes nothing."""
        for part in self._parts:
            part.close()


def _words_without_reserve(space: DiskSpace, reserve: int) -> str:
    return (
        f"the reserve of {_amount(reserve)} is in use, {_amount(space.free)} are free; "
        f"adds resume when {_amount(2 * reserve)} are free"
    )


def _words_below(space: DiskSpace, limits: SpaceLimits) -> str:
    return (
        f"{_amount(space.free)} are free, less than the limit of {_amount(limits.least(space))}; "
        f"adds resume when {_amount(limits.resume(space))} are free"
    )


def _amount(size: int) -> str:
    return f"{size / _MIB:.1f} MiB" if size >= _MIB // 10 else f"{size} bytes"


def _do_nothing() -> None:
    """Do nothing: there is no worker yet."""
