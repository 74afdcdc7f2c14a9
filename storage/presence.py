"""Whether a ledger is there, what is said where something is not, and waiting for what is to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from storage.errors import AnswerUnknown, NoSuchEntry, NoSuchLedger
from storage.tail import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.parts import Parts


def exists(parts: Parts, ledger_id: int) -> bool:
    """Whether there is such a ledger, with what is durable alone."""
    return parts.tails.of(ledger_id).end != EMPTY or parts.registry.of(ledger_id).makes_a_ledger


def missing(parts: Parts, ledger_id: int, entry_id: int | None = None) -> NoReturn:
    """Raises what is true of something that was not found."""
    if parts.registry.may_lack(ledger_id):
        raise AnswerUnknown(ledger_id, entry_id)
    if entry_id is None or not exists(parts, ledger_id):
        raise NoSuchLedger(ledger_id)
    raise NoSuchEntry(ledger_id, entry_id)


def waited_for(
    parts: Parts, ledger_id: int, confirmed: Callable[[], int], beyond: int, timeout_s: float | None
) -> int:
    """What is confirmed when that is beyond, or when there is nothing to wait for any more."""

    def is_there() -> bool:
        if parts.latch.has_ended or parts.registry.of(ledger_id).fenced:
            return True
        return confirmed() > beyond

    parts.committer.news.wait_for(is_there, timeout_s)
    return confirmed()
