"""Fingerprint of the verification settings: a cached part is reused only if it is equal.

Only settings that matter to the part are included: a new ledger changes nothing for logs that do not contain
it, and it makes no difference whether a type is declared or presumed. But where bytes make no sense, the type
of any ledger may decide what is found after them, so all settings matter to a part with flaws.

Passwords cannot be read out of it. An attacker who has the fingerprint has to guess, and scrypt makes each
guess expensive. All passwords of the audit are included together, so that all have to be guessed together.
Therefore one more password changes the fingerprint of every part that any password matters to, and of no
other part.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

import numpy as np

from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.model.scan_results import LogPart

_LEDGER = struct.Struct(">qqq")
_UNKNOWN_TYPE = 0
_COST = 1 << 14
"""The cost of scrypt: 16 MiB and some 50 ms for each guess."""


class SettingsFingerprint:
    """Computes fingerprints. Keeps what is expensive: the hash of the passwords, and that of all ledgers."""

    def __init__(self) -> None:
        self._secrets: dict[tuple[bytes, bytes], bytes] = {}
        self._everything: dict[tuple[int, int], tuple[DigestPolicy, Mapping[int, int], bytes]] = {}
        """By the identity of both objects, which are kept so that no other objects get the same identity."""

    def of(self, part: LogPart, policy: DigestPolicy, steps: Mapping[int, int], salt: bytes) -> str:
        """Return the fingerprint. `salt` is any bytes, different for each report."""
        digest = hashlib.blake2b(digest_size=16)
        if part.flaws:
            digest.update(b"all" + self._all(policy, steps) + self._secret(policy, salt))
            return digest.hexdigest()
        for ledger in _ledgers(part):
            digest.update(_LEDGER.pack(ledger, _type_code(policy, ledger), steps.get(ledger, 1)))
        if _asks_for_passwords(part, policy):
            digest.update(self._secret(policy, salt))
        return digest.hexdigest()

    def _all(self, policy: DigestPolicy, steps: Mapping[int, int]) -> bytes:
        # There may be a million ledgers, and a thousand parts with flaws.
        both = id(policy), id(steps)
        if both not in self._everything:
            self._everything[both] = (policy, steps, _all(policy, steps))
        return self._everything[both][2]

    def _secret(self, policy: DigestPolicy, salt: bytes) -> bytes:
        passwords = _passwords(policy)
        if not passwords:
            return b""
        if (salt, passwords) not in self._secrets:
            self._secrets[salt, passwords] = hashlib.scrypt(passwords, salt=salt, n=_COST, r=8, p=1)
        return self._secrets[salt, passwords]


def _ledgers(part: LogPart) -> list[int]:
    return sorted({*np.unique(part.runs["ledger"]).tolist(), *part.types, *part.unverified})


def _type_code(policy: DigestPolicy, ledger: int) -> int:
    kind = policy.type_of(ledger)
    return _UNKNOWN_TYPE if kind is None else kind.value


def _asks_for_passwords(part: LogPart, policy: DigestPolicy) -> bool:
    return any(
        (policy.type_of(ledger) or part.types.get(ledger)) is DigestType.MAC
        or (policy.type_of(ledger) is None and ledger in part.unverified)
        for ledger in _ledgers(part)
    )


def _all(policy: DigestPolicy, steps: Mapping[int, int]) -> bytes:
    presumed = _UNKNOWN_TYPE if policy.presumed is None else policy.presumed.value
    declared = ((ledger, kind.value) for ledger, kind in policy.declared.items())
    striped = ((ledger, step) for ledger, step in steps.items() if step != 1)
    opened = ((ledger, 1) for ledger in policy.open)
    said: list[Iterable[tuple[int, int]]] = [[(0, presumed)], declared, opened, striped]
    packed = (_LEDGER.pack(kind, *pair) for kind, pairs in enumerate(said) for pair in sorted(pairs))
    return hashlib.blake2b(b"".join(packed)).digest()


def _passwords(policy: DigestPolicy) -> bytes:
    """Return all passwords, each with its ledger; empty if there are none."""
    all_of_them = [] if policy.password is None else [(-1, policy.password)]
    all_of_them += sorted(policy.passwords.items())
    return b"".join(_LEDGER.pack(len(one), ledger, 0) + one for ledger, one in all_of_them)
