"""Whether the password that was given is that of a ledger: its key says so, or else its entries."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from storage.codec.digest import DigestCheck, digester, master_key
from storage.codec.entry import check_digest
from storage.entry import DigestType
from storage.errors import EntryUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.shell.passwords import Passwords
    from recovery.view import View
    from storage.codec.digest import Digester

_TRIED_MAX = 64
"""Entries that are tried where nothing else tells: one of them that verifies proves a password."""


def verifier(view: View, ledger_id: int, passwords: Passwords) -> tuple[Digester | None, str | None]:
    """What verifies the ledger's entries; and why the password that was given does not fit, if so."""
    known, password = view.digester(ledger_id), passwords.of(ledger_id)
    if password is None or known is None or known.digest_type is not DigestType.MAC:
        return known, None
    why = _misfit(view, ledger_id, password)
    if why is None:
        return digester(DigestType.MAC, password), None
    return known, f"ledger {ledger_id}: the password does not fit: {why}; its entries stay unverified"


def _misfit(view: View, ledger_id: int, password: bytes) -> str | None:
    key = view.facts(ledger_id).master_key
    if key is not None:
        return None if key == master_key(password) else "its key belongs to another one"
    tried = islice(_entries(view, ledger_id), _TRIED_MAX)
    mac = digester(DigestType.MAC, password)
    if any(check_digest(data, mac) is DigestCheck.OK for data in tried):
        return None
    return "nothing tells its key, and none of its first entries verifies with it"


def _entries(view: View, ledger_id: int) -> Iterator[bytes]:
    for entry_id in view.ids(ledger_id):
        try:
            data = view.data(ledger_id, entry_id)
        except EntryUnreadable:
            continue
        if data is not None:
            yield data
