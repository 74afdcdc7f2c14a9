"""How a topic is kept: when it begins its next ledger, and when an old one goes. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.cluster.topics.managed_ledger import LedgerInfo, Position

NO_LIMIT = -1
"""Switches a limit of `Retention` off."""


@dataclass(frozen=True, slots=True)
class RollOver:
    """A ledger is full, and the next one begins, after so many entries or bytes, or this time.

    The defaults are those of Pulsar's library.
    """

    entries: int = 50_000
    size: int = 100 << 20
    """Bytes of entries."""
    age_s: float = 4 * 3600.0
    """Counts from the first entry, because a ledger without entries is never full."""
    age_min_s: float = 0.0
    """No ledger is closed sooner, however many entries it has."""

    def __post_init__(self) -> None:
        if self.entries < 1 or self.size < 1 or self.age_s <= 0 or not 0 <= self.age_min_s <= self.age_s:
            reason = "entries, size and age have to be positive, and age_min_s between 0 and age_s"
            raise InvalidConfig("roll_over", reason)

    def is_full(self, entries: int, size: int, age_ms: int) -> bool:
        """Return whether a ledger with these figures is closed now."""
        if not entries:
            return False
        has_enough = entries >= self.entries or size >= self.size or age_ms >= self.age_s * 1000
        return has_enough and age_ms >= self.age_min_s * 1000

    def full_after_ms(self, entries: int, size: int) -> int | None:
        """Return at which age a ledger with these figures is full if nothing is added; `None` if never."""
        if not entries:
            return None
        has_enough = entries >= self.entries or size >= self.size
        return int((self.age_min_s if has_enough else self.age_s) * 1000)


DEFAULT_ROLL_OVER = RollOver()


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ledgers stay that all subscriptions have passed.

    A ledger goes when it is older than `age_s`, or when as many bytes as `size` remain without it. -1
    switches a limit off. By default nothing goes; with 0 and 0 a ledger goes as soon as it may.
    """

    age_s: float = NO_LIMIT
    """Counts from the moment at which the ledger was closed."""
    size: int = NO_LIMIT

    def __post_init__(self) -> None:
        if not all(value == NO_LIMIT or value >= 0 for value in (self.age_s, self.size)):
            raise InvalidConfig("retention", "a limit is at least 0, or -1 for none")


KEEP_ALL = Retention()


class MissingLedgers(enum.Enum):
    """What an opening does about ledgers that are in the list, and do not exist."""

    REFUSE = "raise LedgerMissing"
    SKIP = "take them out of the list, because their messages are lost"


class TopicOptions(TypedDict, total=False):
    """How a topic is kept."""

    roll_over: RollOver
    retention: Retention
    missing: MissingLedgers


def ledgers_to_trim(
    ledgers: Sequence[LedgerInfo],
    current: int | None,
    cursors: Iterable[Position],
    retention: Retention,
    now_ms: int,
) -> list[LedgerInfo]:
    """Return the ledgers that may go: a part from the first one on, without the ledger that is written.

    The first ledger that has to stay ends it, so that a topic never has a gap in the middle.
    """
    slowest = min(cursors, default=None)
    remaining = sum(one.size or 0 for one in ledgers)
    found = []
    for one in ledgers:
        if one.ledger_id == current or not one.timestamp_ms or not _is_passed(one, slowest):
            break
        remaining -= one.size or 0
        is_expired = retention.age_s >= 0 and now_ms - one.timestamp_ms > retention.age_s * 1000
        is_over_size = retention.size >= 0 and remaining >= retention.size
        if not (is_expired or is_over_size):
            break
        found.append(one)
    return found


def _is_passed(ledger: LedgerInfo, slowest: Position | None) -> bool:
    return slowest is None or slowest >= (ledger.ledger_id, (ledger.entries or 0) - 1)
