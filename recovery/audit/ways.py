"""How the entries of each ledger are verified: what is declared, what has to be found out, what is secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.codec.digest import Digester, digester
from storage.codec.survey import EntryVerifier
from storage.entry import DigestType

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Ways:
    """What is known of the ledgers' digests before any entry has been seen. Pickled into tasks."""

    declared: Mapping[int, DigestType] = field(default_factory=dict)
    presumed: DigestType | None = None
    """Of a ledger that is neither declared nor open: in a store of ours CRC-32C, in a bookie's nothing."""
    open: frozenset[int] = frozenset()
    """Ledgers of which nothing is presumed either: only their entries tell."""
    passwords: Mapping[int, bytes] = field(default_factory=dict)
    password: bytes | None = None
    """Of every ledger that is not named in `passwords`."""

    def type_of(self, ledger_id: int) -> DigestType | None:
        """What is declared or presumed; `None`: the entries have to tell."""
        if ledger_id in self.declared:
            return self.declared[ledger_id]
        return None if ledger_id in self.open else self.presumed

    def password_of(self, ledger_id: int) -> bytes | None:
        return self.passwords.get(ledger_id, self.password)

    def digester(self, ledger_id: int, kind: DigestType) -> Digester:
        """What verifies that ledger's entries under that type; of a MAC without a password: nothing."""
        password = self.password_of(ledger_id) if kind is DigestType.MAC else None
        return Digester(kind) if password is None else digester(kind, password)

    def verifier(self) -> EntryVerifier:
        """The same, entry by entry, with a survey of its own for what is not declared."""
        return EntryVerifier(_Declared(self), self.password_of)


class _Declared(dict[int, Digester]):
    """The mapping that `EntryVerifier` asks."""

    def __init__(self, ways: Ways) -> None:
        super().__init__()
        self._ways = ways

    def __contains__(self, ledger_id: object) -> bool:
        return isinstance(ledger_id, int) and self._ways.type_of(ledger_id) is not None

    def __missing__(self, ledger_id: int) -> Digester:
        kind = self._ways.type_of(ledger_id)
        if kind is None:
            raise KeyError(ledger_id)
        found = self[ledger_id] = self._ways.digester(ledger_id, kind)
        return found
