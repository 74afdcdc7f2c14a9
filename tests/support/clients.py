"""Who writes a ledger through a bookie: makes entries, digests and keys itself; the bookie keeps bytes."""

from __future__ import annotations

from dataclasses import dataclass

from storage.codec import entry as entry_codec
from storage.codec.digest import Digester, digester, master_key
from storage.entry import DigestType, Entry

PAYLOAD_SIZE = 8


@dataclass(frozen=True, slots=True)
class Client:
    """One ledger's writer. Unless it is told otherwise its entries count on from each other."""

    ledger_id: int = 7
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b"secret"

    @property
    def key(self) -> bytes:
        return master_key(self.password)

    @property
    def digester(self) -> Digester:
        return digester(self.digest_type, self.password)

    def entry(self, entry_id: int, payload: bytes = b"", confirmed: int | None = None) -> bytes:
        """The entry's bytes; its writer has heard of all before it, unless `confirmed` says less."""
        payload = payload or b"%8d" % entry_id
        said = entry_id - 1 if confirmed is None else confirmed
        length = entry_id * PAYLOAD_SIZE + len(payload)
        return entry_codec.encode(Entry(self.ledger_id, entry_id, said, length, payload), self.digester)

    def packet(self, confirmed: int) -> bytes:
        """An explicit last add confirmed."""
        return entry_codec.encode_lac(self.ledger_id, confirmed, self.digester)


def flipped(data: bytes, at: int = -1) -> bytes:
    """The bytes as they arrive when one bit of them was damaged on the way."""
    damaged = bytearray(data)
    damaged[at] ^= 0x20
    return bytes(damaged)
