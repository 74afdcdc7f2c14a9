"""The recovery of our store: opens it, reads everything through its public interface, and works on."""

from __future__ import annotations

from contextlib import suppress
from itertools import count, product
from typing import TYPE_CHECKING

from recovery.crashlab.judge.outcome import ObservedState, UnreadableValue
from recovery.proving.session import PASSWORDS, Session
from recovery.proving.store_under_test import StoreUnderTest
from storage.entry.model import DigestType
from storage.errors import AnswerUnknown, EntryUnreadable, LedgerFenced, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from recovery.crashlab.judge.outcome import Key
    from recovery.crashlab.record.history import Ctx, Value
    from storage.ledger import Ledger
    from storage.store import Store

LEDGERS_MAX = 100
"""Upper limit of the ids of ledgers in workloads."""

ENTRIES_MAX = 200
"""Upper limit of the ids of entries in workloads."""

# Openings after a crash use other salts than those before it.
_NUMBERS_OF_RECOVERIES = 1 << 32
_NUMBERS_BEHIND = 1 << 33


def recover(root: Path) -> ObservedState:
    """Return every entry of every ledger, fences and confirmations, as an opening shows them.

    The store is left as a kill would leave it, so that the same root can be recovered again.
    """
    with StoreUnderTest(root, count(_NUMBERS_OF_RECOVERIES)) as opened:
        return shown_by(opened.store)


def shown_by(store: Store) -> ObservedState:
    """Return everything that an open store shows."""
    ledgers = [ledger_of(store, ledger_id) for ledger_id in store.ledgers()]
    entries = {key: value for ledger in ledgers for key, value in _entries(ledger)}
    return ObservedState(
        {**_unknown_entries(store), **entries},
        frozenset(ledger.id for ledger in ledgers if _is_fenced(ledger)),
        {ledger.id: ledger.explicit_lac for ledger in ledgers},
    )


def ledger_of(store: Store, ledger_id: int) -> Ledger:
    """Return the ledger with the password that reads it; only a MAC needs one."""
    ledger = store.ledger(ledger_id)
    if ledger.digest_type is not DigestType.MAC or not ledger.entry_ids():
        return ledger
    tries = (store.ledger(ledger_id, password=password) for password in PASSWORDS)
    return next((one for one in tries if _may_be_read(one)), ledger)


def _may_be_read(ledger: Ledger) -> bool:
    try:
        ledger.read(ledger.entry_ids()[0].start)
    except Unauthorized:
        return False
    except (EntryUnreadable, AnswerUnknown):
        return True
    return True


def _entries(ledger: Ledger) -> Iterator[tuple[Key, Value | UnreadableValue]]:
    # Read entries one by one, because a scan would load numpy in each forked child.
    for entry_ids in ledger.entry_ids():
        for entry_id in entry_ids:
            yield (ledger.id, entry_id), _value(ledger, entry_id)


def _value(ledger: Ledger, entry_id: int) -> Value | UnreadableValue:
    try:
        return ledger.read(entry_id).payload
    except (EntryUnreadable, AnswerUnknown) as error:
        return UnreadableValue(f"{error}")


def _is_fenced(ledger: Ledger) -> bool:
    try:
        return ledger.is_fenced
    except AnswerUnknown:  # fences are in the ledger metadata, and the store opens only if it is intact
        return False


def _unknown_entries(store: Store) -> dict[Key, UnreadableValue]:
    """Return unreadable values for every possible key if the store cannot tell which entries it has lost."""
    try:
        # Ask for a ledger that does not exist. No workload puts ledgers in limbo, so the answer holds for
        # all.
        store.bookie.has(LEDGERS_MAX, 0)
    except AnswerUnknown as error:
        every = product(range(LEDGERS_MAX), range(ENTRIES_MAX))
        return dict.fromkeys(every, UnreadableValue(f"{error}"))
    return {}


# ── after a recovery ──────────────────────────────────────────────────────────────────────────────────────


def go_on(root: Path, ctx: Ctx) -> None:
    """Work on: add to every ledger and to new ones, make a checkpoint, fence, and delete."""
    with Session(root, ctx, count(_NUMBERS_BEHIND)) as session:
        for ledger_id in session.store.ledgers():
            # Skip ledgers with gaps in their ids: an entry that was never acknowledged stays missing, and an
            # entry appended after it would look like a hole.
            if session.store.ledger(ledger_id).entry_ids() == [range(session.next_id(ledger_id))]:
                _append_behind(session, ledger_id)
        session.append(70, 40)
        session.append_many(71, 50, 50)
        session.request_checkpoint()
        for number in session.steps():
            if not session.opened.is_full:
                session.append(72 + number % 2, 10)
        session.fence(70)
        session.confirm(71, 1)
        session.delete(72)
        session.append(72, 20)


def _append_behind(session: Session, ledger_id: int) -> None:
    """Append an entry to the ledger unless it is fenced."""
    for password in PASSWORDS:
        with suppress(Unauthorized, LedgerFenced):
            session.append(ledger_id, 10, password=password)
            return
