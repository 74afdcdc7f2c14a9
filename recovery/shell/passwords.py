"""The passwords that were given, and which of them the file itself proves right.

A wrong password makes every entry of a ledger look damaged. So a password is used only when a ledger-key
record agrees with it or at least one entry verifies with it; otherwise the ledger stays unverified, and that
is said once instead of in a thousand rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from storage.codec.digest import DigestCheck, digester, master_key
from storage.codec.entry import IDS, check_digest
from storage.entry import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from storage.codec.digest import Buffer
    from storage.codec.survey import DigestSurvey


@dataclass(frozen=True, slots=True)
class Passwords:
    """One for each ledger named, and one for all others."""

    by_ledger: Mapping[int, bytes] = field(default_factory=lambda: MappingProxyType({}))
    otherwise: bytes | None = None

    def of(self, ledger_id: int) -> bytes | None:
        return self.by_ledger.get(ledger_id, self.otherwise)


def parse(texts: list[str]) -> Passwords:
    """From the forms TEXT and LEDGER=TEXT; of two for the same ledger the later counts."""
    by_ledger: dict[int, bytes] = {}
    otherwise: bytes | None = None
    for text in texts:
        ledger, equals, password = text.partition("=")
        if equals and ledger.isascii() and ledger.isdigit():
            by_ledger[int(ledger)] = _bytes(password)
        else:
            otherwise = _bytes(text)
    return Passwords(by_ledger, otherwise)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


class Keyring:
    """Hands out a password only where something in the file proves it."""

    def __init__(self, passwords: Passwords, complain: Callable[[str], None]) -> None:
        self._passwords = passwords
        self._complain = complain
        self._proven: set[int] = set()
        self._contradicted: dict[int, int] = {}
        self.misfits: set[int] = set()
        """Ledgers whose password does not fit, each complained of once."""

    def given(self, ledger_id: int) -> bytes | None:
        """What was given for the ledger, right or wrong."""
        return self._passwords.of(ledger_id)

    def saw_key(self, ledger_id: int, key: bytes, offset: int) -> None:
        """A ledger-key record: it holds the master key that the right password gives."""
        password = self._passwords.of(ledger_id)
        if password is None:
            return
        if master_key(password) == key:
            self._proven.add(ledger_id)
        else:
            self._contradicted.setdefault(ledger_id, offset)

    def saw_entry(self, data: Buffer, survey: DigestSurvey) -> None:
        """An entry, known to the survey: the password is right if it verifies."""
        ledger_id, _ = IDS.unpack_from(data)
        password = self._passwords.of(ledger_id)
        if password is None or ledger_id in self._proven:
            return
        if survey.digest_type(ledger_id) is not DigestType.MAC:
            return
        if check_digest(data, digester(DigestType.MAC, password)) is DigestCheck.OK:
            self._proven.add(ledger_id)

    def password_of(self, ledger_id: int) -> bytes | None:
        """The proven password of a MAC ledger."""
        password = self._passwords.of(ledger_id)
        if password is None or ledger_id in self._proven:
            return password
        if ledger_id not in self.misfits:
            self.misfits.add(ledger_id)
            self._complain(self._complaint(ledger_id))
        return None

    def _complaint(self, ledger_id: int) -> str:
        offset = self._contradicted.get(ledger_id)
        if offset is None:
            why = "no entry of this file verifies with it"
        else:
            why = f"the ledger key at offset {offset} belongs to another one"
        return f"ledger {ledger_id}: the password does not fit: {why}; its entries stay unverified"
