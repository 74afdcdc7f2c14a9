"""The order of a store's logs, including missing ones, and which of their entries are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.model.store_facts import IndexFacts
from recovery.rebuild.entry_log_chain import in_creation_order
from recovery.rebuild.index_builder import tombstone_positions

if TYPE_CHECKING:
    from recovery.audit.model.store_facts import StoreFacts

DeletePosition = tuple[int, int]


def ranks(facts: StoreFacts) -> dict[int, int]:
    """Return for each log its rank by age, counted from the oldest."""
    known = facts.index.state.log_ends if isinstance(facts.index, IndexFacts) else {}
    ids = {log.log_id for log in facts.logs} | known.keys()
    return {log_id: rank for rank, log_id in enumerate(in_creation_order(ids))}


def delete_positions(facts: StoreFacts) -> dict[int, DeletePosition]:
    """Return for each deleted ledger the log rank and offset before which its entries are deleted."""
    return tombstone_positions(facts.rows, list(ranks(facts)))
