"""The order of a store's logs, those that are missing among them, and what of it is dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.lineage import in_order
from recovery.placing import graves
from recovery.verify.facts import IndexFacts

if TYPE_CHECKING:
    from recovery.verify.facts import StoreFacts

Grave = tuple[int, int]


def ranks(facts: StoreFacts) -> dict[int, int]:
    """For each log when it was begun, counted from the oldest."""
    known = facts.index.state.log_ends if isinstance(facts.index, IndexFacts) else {}
    ids = {log.log_id for log in facts.logs} | known.keys()
    return {log_id: rank for rank, log_id in enumerate(in_order(ids))}


def dead(facts: StoreFacts) -> dict[int, Grave]:
    """For each deleted ledger the rank of a log and an offset in it before which it is dead."""
    return graves(facts.rows, list(ranks(facts)))
