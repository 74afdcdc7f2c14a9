"""What the store shows after it was opened, through its public face; and that it works on behind that."""

from __future__ import annotations

from contextlib import suppress
from itertools import count, product
from typing import TYPE_CHECKING

from recovery.crashlab.shown import Shown, Unreadable
from recovery.proving.opened import Opened
from recovery.proving.sitting import PASSWORDS, Sitting
from storage.entry import DigestType
from storage.errors import AnswerUnknown, EntryUnreadable, LedgerFenced, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from recovery.crashlab.history import Ctx, Value
    from recovery.crashlab.shown import Key
    from storage.ledger import Ledger
    from storage.store import Store

LEDGERS_MAX = 100
"""The ids of all ledgers that a workload makes are below."""

ENTRIES_MAX = 200
"""So are those of their entries."""

# Salts of whoever opens behind a crash: never those of the crashed.
_NUMBERS_OF_RECOVERIES = 1 << 32
_NUMBERS_BEHIND = 1 << 33


def recover(root: Path) -> Shown:
    """Every entry of every ledger, fences and confirmations, as an opening shows them.

    Ends as a kill would end it, so that the same root can be recovered again; nothing stays open.
    """
    with Opened(root, count(_NUMBERS_OF_RECOVERIES)) as opened:
        return shown_by(opened.store)


def shown_by(store: Store) -> Shown:
    """All that an open store shows."""
    ledgers = [ledger_of(store, ledger_id) for ledger_id in store.ledgers()]
    entries = {key: value for ledger in ledgers for key, value in _entries(ledger)}
    return Shown(
        {**_unknown(store), **entries},
        frozenset(ledger.id for ledger in ledgers if _is_fenced(ledger)),
        {ledger.id: ledger.explicit_lac for ledger in ledgers},
    )


def ledger_of(store: Store, ledger_id: int) -> Ledger:
    """The ledger, with the password that reads it: only a MAC needs one."""
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


def _entries(ledger: Ledger) -> Iterator[tuple[Key, Value | Unreadable]]:
    # One by one: a scan verifies blocks with numpy where there is one, and each forked child would load it.
    for entry_ids in ledger.entry_ids():
        for entry_id in entry_ids:
            yield (ledger.id, entry_id), _value(ledger, entry_id)


def _value(ledger: Ledger, entry_id: int) -> Value | Unreadable:
    try:
        return ledger.read(entry_id).payload
    except (EntryUnreadable, AnswerUnknown) as error:
        return Unreadable(f"{error}")


def _is_fenced(ledger: Ledger) -> bool:
    try:
        return ledger.is_fenced
    except AnswerUnknown:  # what fences is in the rows, and those are whole or the store does not open
        return False


def _unknown(store: Store) -> dict[Key, Unreadable]:
    """What a store says nothing of that has lost something: neither that it is there nor that it is not."""
    try:
        # Of a ledger that nobody has made. No workload puts one in limbo: what holds of one holds of all.
        store.bookie.has(LEDGERS_MAX, 0)
    except AnswerUnknown as error:
        every = product(range(LEDGERS_MAX), range(ENTRIES_MAX))
        return dict.fromkeys(every, Unreadable(f"{error}"))
    return {}


# ── behind a recovery ─────────────────────────────────────────────────────────────────────────────────────


def go_on(root: Path, ctx: Ctx) -> None:
    """Works on: behind every ledger's end and in new ledgers, with a checkpoint, a fence and a delete."""
    with Sitting(root, ctx, count(_NUMBERS_BEHIND)) as sitting:
        for ledger_id in sitting.store.ledgers():
            # Where ids have gaps, one that was never acknowledged stays missing, and what is appended
            # behind it would look like a hole.
            if sitting.store.ledger(ledger_id).entry_ids() == [range(sitting.next_id(ledger_id))]:
                _append_behind(sitting, ledger_id)
        sitting.append(70, 40)
        sitting.append_many(71, 50, 50)
        sitting.request_checkpoint()
        for number in sitting.steps():
            if not sitting.opened.is_full:
                sitting.append(72 + number % 2, 10)
        sitting.fence(70)
        sitting.confirm(71, 1)
        sitting.delete(72)
        sitting.append(72, 20)


def _append_behind(sitting: Sitting, ledger_id: int) -> None:
    """An entry behind the ledger's last one, unless it is fenced."""
    for password in PASSWORDS:
        with suppress(Unauthorized, LedgerFenced):
            sitting.append(ledger_id, 10, password=password)
            return
