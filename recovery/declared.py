"""What is declared of the ledgers' digests, before any of their entries has been seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.codec.digest import Digester
from storage.entry import DigestType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.row import LedgerRow

_CRC32C = Digester(DigestType.CRC32C)


class Declared(dict[int, Digester]):
    """The digesters of the ledgers whose type their rows know. A MAC comes without its key: unverified."""

    def __init__(self, rows: Mapping[int, LedgerRow]) -> None:
        super().__init__(
            {row.ledger_id: Digester(row.digest_type) for row in rows.values() if row.digest_type is not None}
        )


class DeclaredByRows(Declared):
    """The same in a store of ours, where a ledger without a row is a plain one: CRC-32C."""

    def __init__(self, rows: Mapping[int, LedgerRow]) -> None:
        super().__init__(rows)
        self._unknown = {row.ledger_id for row in rows.values() if row.digest_type is None}

    def __contains__(self, ledger_id: object) -> bool:
        return ledger_id not in self._unknown

    def __missing__(self, ledger_id: int) -> Digester:
        return _CRC32C
