"""What a caller brings: ids, a payload, a password. Looked at before anything is done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.access import Access
from storage.codec import entry as entry_codec
from storage.codec.digest import mac_key, master_key
from storage.entry import ID_MAX, DigestType
from storage.errors import EntryTooLarge, InvalidEntry

if TYPE_CHECKING:
    from storage.config import StoreConfig

    Payload = bytes | bytearray | memoryview

OVERHEAD_MAX = entry_codec.HEAD.size + max(digest_type.width for digest_type in DigestType)
"""What an entry takes beside its payload, at most."""


def check_id(what: str, number: int) -> None:
    if not 0 <= number <= ID_MAX:
        raise InvalidEntry(f"{what} id {number} is not between 0 and 2^63 - 1")


def overhead(digest_type: DigestType) -> int:
    """What an entry takes beside its payload."""
    return entry_codec.HEAD.size + digest_type.width


def checked_payload(payload: Payload, config: StoreConfig, overhead_size: int) -> bytes:
    """The payload as bytes that nobody can change any more; raises if there are too many of them."""
    data = payload if type(payload) is bytes else bytes(memoryview(payload))
    size = overhead_size + len(data)
    if size > config.entry_size_max:
        raise EntryTooLarge(size, config.entry_size_max)
    return data


def access_of(password: bytes, digest_type: DigestType | None) -> Access:
    """What a caller with that password shows."""
    # One for all who show nothing: who is admitted is told by identity.
    return _NOTHING if not password and digest_type is None else _access(password, digest_type)


def _access(password: bytes, digest_type: DigestType | None) -> Access:
    return Access(master_key(password), digest_type, mac_key(password))


_NOTHING = _access(b"", None)
