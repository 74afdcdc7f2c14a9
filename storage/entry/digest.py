"""The four digests: over the 32-byte head of an entry and its payload, or over a last-add-confirmed packet.

type     bytes   stored
CRC32    8       zlib's CRC-32 in the lower half of an i64
MAC      20      HMAC-SHA1, keyed with SHA1("mac" + password)
CRC32C   4       CRC-32C (Castagnoli)
DUMMY    0       nothing, so that such an entry cannot be verified
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable

    Buffer = bytes | bytearray | memoryview


class DigestCheck(enum.Enum):
    """The result of a digest check. `UNVERIFIED` must never be read as `OK`."""

    OK = "ok"
    MISMATCH = "mismatch"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True)
class Digester:
    """A digest type, with the key that a MAC needs. A MAC without a key verifies nothing."""

    digest_type: DigestType
    mac_key: bytes | None = field(default=None, repr=False)

    @property
    def verifies(self) -> bool:
        """Return whether a digest of this kind can tell good bytes from bad ones."""
        if self.digest_type is DigestType.MAC:
            return self.mac_key is not None
        return self.digest_type is not DigestType.DUMMY

    def compute(self, head: Buffer, payload: Buffer) -> bytes:
        """Return the digest as it is stored. A MAC without its key is a bug of the caller."""
        if self.digest_type is DigestType.CRC32C:  # the default of BookKeeper's clients
            return crc32c(payload, crc32c(head)).to_bytes(4, "big")
        if self.digest_type is DigestType.MAC:
            assert self.mac_key is not None, "a MAC needs its key"
            return hmac.digest(self.mac_key, bytes(head) + bytes(payload), "sha1")
        return _CHECKSUMS[self.digest_type](head, payload)

    def check(self, head: Buffer, digest: Buffer, payload: Buffer) -> DigestCheck:
        """Return whether the stored digest belongs to these bytes."""
        if not self.verifies:
            return DigestCheck.UNVERIFIED
        good = hmac.compare_digest(self.compute(head, payload), bytes(digest))
        return DigestCheck.OK if good else DigestCheck.MISMATCH


def digester(digest_type: DigestType, password: bytes = b"") -> Digester:
    """Return the digester of a ledger with that password."""
    return Digester(digest_type, mac_key(password) if digest_type is DigestType.MAC else None)


def master_key(password: bytes) -> bytes:
    """Return the key that authorises adds.

    The client sends it and the bookie stores it; it is not a MAC's key.
    """
    return _sha1(b"ledger" + password)


@lru_cache(maxsize=1024)
def mac_key(password: bytes) -> bytes:
    """Return the key of the digests of a MAC ledger."""
    return _sha1(b"mac" + password)


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _crc32(head: Buffer, payload: Buffer) -> bytes:
    return zlib.crc32(payload, zlib.crc32(head)).to_bytes(8, "big")


def _nothing(head: Buffer, payload: Buffer) -> bytes:  # noqa: ARG001 - one signature for all
    return b""


_CHECKSUMS: dict[DigestType, Callable[[Buffer, Buffer], bytes]] = {
    DigestType.CRC32: _crc32,
    DigestType.DUMMY: _nothing,
}
