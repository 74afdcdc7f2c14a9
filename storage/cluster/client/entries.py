"""The bytes of one ledger's entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.entry import format as entry_format
from storage.entry.digest import digester, master_key
from storage.entry.model import DigestType
from storage.entry.read_result import Damaged

if TYPE_CHECKING:
    from storage.entry.digest import Digester
    from storage.entry.model import Entry


@dataclass(frozen=True, slots=True)
class EntryCodec:
    """Encodes and decodes the entries of one ledger, and holds the key that its bookies check."""

    ledger_id: int
    master_key: bytes = field(repr=False)
    digester: Digester

    def encode(self, entry_id: int, last_add_confirmed: int, length: int, payload: bytes) -> bytes:
        """Return the bytes of an entry. `length` is that of all payloads up to and with this one."""
        head = entry_format.HEAD.pack(self.ledger_id, entry_id, last_add_confirmed, length)
        return b"".join((head, self.digester.compute(head, payload), payload))

    def encoded_again(self, entry: Entry, last_add_confirmed: int) -> bytes:
        """Return the bytes of an entry with another last add confirmed."""
        return self.encode(entry.entry_id, last_add_confirmed, entry.length, entry.payload)

    def decode(self, entry_id: int, data: bytes) -> Entry | None:
        """Return the entry, or `None` if these bytes are damaged or another entry's."""
        entry = self.decode_any(data)
        return entry if entry is not None and entry.entry_id == entry_id else None

    def decode_any(self, data: bytes) -> Entry | None:
        """Return the entry of any id, or `None` if these bytes are damaged or of another ledger."""
        entry = entry_format.decode(data, self.digester)
        return None if isinstance(entry, Damaged) or entry.ledger_id != self.ledger_id else entry

    def encode_lac(self, last_add_confirmed: int) -> bytes:
        """Return the packet that tells a last add confirmed."""
        return entry_format.encode_lac(self.ledger_id, last_add_confirmed, self.digester)

    def decode_lac(self, packet: bytes) -> int | None:
        """Return the last add confirmed in a packet, or `None` if it is damaged or of another ledger."""
        lac = entry_format.decode_lac(packet, self.digester)
        is_ours = packet[:8] == self.ledger_id.to_bytes(8, "big")
        return lac if isinstance(lac, int) and is_ours else None


_UNDECLARED = (DigestType.CRC32C, DigestType.CRC32, DigestType.MAC)


@dataclass(frozen=True, slots=True)
class UndeclaredCodec(EntryCodec):
    """The codec of a ledger whose metadata have an old format, which does not say the digest type.

    The first entry tells it: it has the type by which its digest is right. All entries of a ledger have one
    type. Entries without a digest cannot be told from damaged ones, and are not accepted.
    """

    candidates: tuple[EntryCodec, ...] = ()
    known: list[EntryCodec] = field(default_factory=list, compare=False, repr=False)
    """The codec of the ledger when an entry has told it; empty before."""

    def encode(self, entry_id: int, last_add_confirmed: int, length: int, payload: bytes) -> bytes:
        codec = self.known[0] if self.known else self.candidates[0]
        return codec.encode(entry_id, last_add_confirmed, length, payload)

    def decode_any(self, data: bytes) -> Entry | None:
        for codec in self.known or self.candidates:
            entry = codec.decode_any(data)
            if entry is not None:
                self.known[:] = [codec]
                return entry
        return None

    def decode_lac(self, packet: bytes) -> int | None:
        found = (codec.decode_lac(packet) for codec in self.known or self.candidates)
        return next((lac for lac in found if lac is not None), None)


def undeclared_codec(ledger_id: int, password: bytes) -> UndeclaredCodec:
    """Return the codec of a ledger whose metadata do not say the digest type."""
    codecs = tuple(entry_codec(ledger_id, kind, password) for kind in _UNDECLARED)
    return UndeclaredCodec(ledger_id, codecs[0].master_key, codecs[0].digester, codecs)


def entry_codec(ledger_id: int, digest_type: DigestType, password: bytes) -> EntryCodec:
    """Return the codec of a ledger with this digest type and password."""
    return EntryCodec(ledger_id, master_key(password), digester(digest_type, password))
