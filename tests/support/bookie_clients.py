"""A client that writes ledgers through a bookie: it makes entries, digests and keys, and the bookie stores
bytes."""

from __future__ import annotations

from dataclasses import dataclass

from storage.entry import format as entry_format
from storage.entry.digest import Digester, digester, master_key
from storage.entry.model import DigestType, Entry

PAYLOAD_SIZE = 8


@dataclass(frozen=True, slots=True)
class AddingClient:
    """The writer of one ledger. By default each entry continues the previous one's length and ids."""

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
        """Return the entry's bytes. Its last add confirmed is the entry before, unless `confirmed` is
        given."""
        payload = payload or b"%8d" % entry_id
        said = entry_id - 1 if confirmed is None else confirmed
        length = entry_id * PAYLOAD_SIZE + len(payload)
        return entry_format.encode(Entry(self.ledger_id, entry_id, said, length, payload), self.digester)

    def packet(self, confirmed: int) -> bytes:
        """Return the packet of an explicit last add confirmed."""
        return entry_format.encode_lac(self.ledger_id, confirmed, self.digester)


def flipped(data: bytes, at: int = -1) -> bytes:
    """Return the bytes with one bit flipped."""
    damaged = bytearray(data)
    damaged[at] ^= 0x20
    return bytes(damaged)
