"""What a store of ours declares of its ledgers' digests."""

from __future__ import annotations

from storage.codec.digest import Digester
from storage.entry import DigestType

_CRC32C = Digester(DigestType.CRC32C)


class AllCrc32c(dict[int, Digester]):
    """Every ledger, whatever its id: CRC-32C."""

    def __contains__(self, ledger_id: object) -> bool:
        return True

    def __missing__(self, ledger_id: int) -> Digester:
        return _CRC32C
