"""Passwords for MAC digests, and the check that a password is the right one.

With a wrong password every entry of a ledger looks damaged. Therefore a password is used only if a ledger-key
record matches it, or at least one entry verifies with it. Otherwise the ledger stays unverified, and the
command says so once instead of in each row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from storage.entry.digest import DigestCheck, digester, master_key
from storage.entry.format import IDS, check_digest
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from storage.entry.digest import Buffer
    from storage.entry.digest_inference import DigestSurvey


@dataclass(frozen=True, slots=True)
class Passwords:
    """One password for each ledger that was named, and one for all other ledgers."""

    by_ledger: Mapping[int, bytes] = field(default_factory=lambda: MappingProxyType({}))
    otherwise: bytes | None = None

    def of(self, ledger_id: int) -> bytes | None:
        return self.by_ledger.get(ledger_id, self.otherwise)


def parse(texts: list[str]) -> Passwords:
    """Parse texts of the forms TEXT and LEDGER=TEXT.

    A later text replaces an earlier one for the same ledger.
    """
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
    """Returns the password of a ledger only if a record of the file proves that it is right."""

    def __init__(self, passwords: Passwords, complain: Callable[[str], None]) -> None:
        self._passwords = passwords
        self._complain = complain
        self._proven: set[int] = set()
        self._contradicted: dict[int, int] = {}
        self.misfits: set[int] = set()
        """Ledgers whose password is wrong. Each was reported once."""

    def given(self, ledger_id: int) -> bytes | None:
        """Return the password that the user gave for the ledger, right or wrong."""
        return self._passwords.of(ledger_id)

    def note_key(self, ledger_id: int, key: bytes, offset: int) -> None:
        """Compare the password with a ledger-key record: the right password gives its master key."""
        password = self._passwords.of(ledger_id)
        if password is None:
            return
        if master_key(password) == key:
            self._proven.add(ledger_id)
        else:
            self._contradicted.setdefault(ledger_id, offset)

    def saw_entry(self, data: Buffer, survey: DigestSurvey) -> None:
        """Try the password on an entry that the survey has seen: it is right if the entry verifies."""
        ledger_id, _ = IDS.unpack_from(data)
        password = self._passwords.of(ledger_id)
        if password is None or ledger_id in self._proven:
            return
        if survey.digest_type(ledger_id) is not DigestType.MAC:
            return
        if check_digest(data, digester(DigestType.MAC, password)) is DigestCheck.OK:
            self._proven.add(ledger_id)

    def password_of(self, ledger_id: int) -> bytes | None:
        """Return the password of a MAC ledger if it is proven. Report a wrong one once."""
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
            why = f"the ledger key at offset {offset} is that of another password"
        return f"ledger {ledger_id}: wrong password: {why}; its entries stay unverified"
