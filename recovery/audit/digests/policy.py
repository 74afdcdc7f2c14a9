"""How the entries of each ledger are verified: declared types, types to be inferred, passwords."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.entry.digest import Digester, digester
from storage.entry.digest_inference import EntryVerifier
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class DigestPolicy:
    """The digest types and passwords that are known before an entry is read. Pickled into tasks."""

    declared: Mapping[int, DigestType] = field(default_factory=dict)
    presumed: DigestType | None = None
    """The type of a ledger that is neither declared nor open: CRC-32C in a ledgerstore directory, unknown in
    a bookie's.
    """
    open: frozenset[int] = frozenset()
    """Ledgers whose type is not presumed either: it is inferred from their entries."""
    passwords: Mapping[int, bytes] = field(default_factory=dict)
    password: bytes | None = None
    """The password of every ledger that is not in `passwords`."""

    def type_of(self, ledger_id: int) -> DigestType | None:
        """Return the declared or presumed type, or `None` if the entries have to tell."""
        if ledger_id in self.declared:
            return self.declared[ledger_id]
        return None if ledger_id in self.open else self.presumed

    def password_of(self, ledger_id: int) -> bytes | None:
        return self.passwords.get(ledger_id, self.password)

    def digester(self, ledger_id: int, kind: DigestType) -> Digester:
        """Return a digester for the ledger. Without a password a MAC digester verifies nothing."""
        password = self.password_of(ledger_id) if kind is DigestType.MAC else None
        return Digester(kind) if password is None else digester(kind, password)

    def verifier(self) -> EntryVerifier:
        """Return a verifier for single entries, with its own survey for ledgers whose type is not
        declared.
        """
        return EntryVerifier(_KnownDigesters(self), self.password_of)


class _KnownDigesters(dict[int, Digester]):
    """The mapping of digesters that `EntryVerifier` uses."""

    def __init__(self, policy: DigestPolicy) -> None:
        super().__init__()
        self._policy = policy

    def __contains__(self, ledger_id: object) -> bool:
        return isinstance(ledger_id, int) and self._policy.type_of(ledger_id) is not None

    def __missing__(self, ledger_id: int) -> Digester:
        kind = self._policy.type_of(ledger_id)
        if kind is None:
            raise KeyError(ledger_id)
        found = self[ledger_id] = self._policy.digester(ledger_id, kind)
        return found
