"""Checks of the arguments that callers pass: ids, payloads, passwords.

An argument of a wrong type is a `TypeError`, one with a wrong value a `StoreError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

from storage.entry import format as entry_format
from storage.entry.credentials import Access
from storage.entry.digest import mac_key, master_key
from storage.entry.model import ID_MAX, DigestType
from storage.errors import EntryTooLarge, InvalidEntry

if TYPE_CHECKING:
    from storage.config import StoreConfig

    Payload = bytes | bytearray | memoryview

OVERHEAD_MAX = entry_format.HEAD.size + max(digest_type.width for digest_type in DigestType)
"""The most bytes of an entry besides its payload."""


def check_id(what: str, number: int) -> None:
    """Raise unless the number can be the id of a ledger or an entry."""
    if type(number) is not int:
        check_integer(f"{what} id", number)
    if not 0 <= number <= ID_MAX:
        raise InvalidEntry(f"{what} id {number} is not between 0 and 2^63 - 1")


def check_integer(what: str, number: object) -> None:
    """Raise unless it is an integer; a bool is refused, although Python counts it as an integer."""
    if isinstance(number, bool) or not isinstance(number, SupportsIndex):
        raise TypeError(f"the {what} is an integer, not {number!r}")


def overhead(digest_type: DigestType) -> int:
    """Return the bytes of an entry besides its payload."""
    return entry_format.HEAD.size + digest_type.width


def checked_payload(payload: Payload, config: StoreConfig, overhead_size: int) -> bytes:
    """Return the payload as immutable bytes; raise if it is too large."""
    data = payload if type(payload) is bytes else _copied(payload)
    size = overhead_size + len(data)
    if size > config.entry_size_max:
        raise EntryTooLarge(size, config.entry_size_max)
    return data


def _copied(payload: Payload) -> bytes:
    try:
        return bytes(memoryview(payload))
    except TypeError:
        raise TypeError(_is_not_bytes("payload", payload)) from None


def _is_not_bytes(what: str, value: object) -> str:
    hint = f": encode it first, for example {what}.encode()" if isinstance(value, str) else ""
    return f"a {what} is bytes, not {type(value).__name__}{hint}"


def access_of(password: bytes, digest_type: DigestType | None) -> Access:
    """Return the access of a caller with that password. `TypeError` for another type of either argument."""
    _check_types(password, digest_type)
    # One object for all callers without a password, because accesses are compared by identity first.
    return _NOTHING if not password and digest_type is None else _access(password, digest_type)


def _check_types(password: object, digest_type: object) -> None:
    if not isinstance(password, bytes):
        raise TypeError(_is_not_bytes("password", password))
    if not (digest_type is None or isinstance(digest_type, DigestType)):
        raise TypeError(f"a digest is a DigestType, for example DigestType.CRC32C, not {digest_type!r}")


def _access(password: bytes, digest_type: DigestType | None) -> Access:
    return Access(master_key(password), digest_type, mac_key(password))


_NOTHING = _access(b"", None)
