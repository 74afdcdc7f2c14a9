"""The digest types and keys of ledgers that their metadata declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.entry.digest import Digester
from storage.entry.ledger_record_table import LedgerRecordTable
from storage.entry.model import DigestType
from storage.ledgers.metadata import PLAIN_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.entry.ledger_record import LedgerRecord

_CRC32C = Digester(DigestType.CRC32C)


class DeclaredDigests(dict[int, Digester]):
    """The digesters of ledgers whose digest type is known. A MAC has no key here, and verifies nothing."""

    def __init__(self, rows: Mapping[int, LedgerRecord]) -> None:
        super().__init__(
            {row.ledger_id: Digester(row.digest_type) for row in rows.values() if row.digest_type is not None}
        )


class PresumedDigests(DeclaredDigests):
    """The same in a store of ours, where a ledger without metadata is protected by CRC-32C."""

    def __init__(self, rows: Mapping[int, LedgerRecord]) -> None:
        # Without tombstones, which may be very many, because a new ledger with such an id uses CRC-32C.
        living = rows.living if isinstance(rows, LedgerRecordTable) else rows
        super().__init__(living)
        self._unknown = {row.ledger_id for row in living.values() if row.digest_type is None}

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id not in self._unknown

    def __missing__(self, ledger_id: int) -> Digester:
        return _CRC32C


def master_key(rows: Mapping[int, LedgerRecord], ledger_id: int) -> bytes | None:
    """Return the ledger's master key; `None` if it is unknown. A ledger without a row has no password."""
    row = rows.get(ledger_id)
    return PLAIN_KEY if row is None else row.master_key
