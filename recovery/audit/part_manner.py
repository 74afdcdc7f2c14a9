"""In which manner a part was verified, as a digest: another type, step or password, and it is another one.

Only what matters to the part is in it: a new ledger changes nothing for the logs that it is not in, and
whether a type is declared or presumed changes nothing at all. But where bytes make no sense, any ledger's
type may decide what is found behind them: all of them matter to a part with flaws.

No password can be read out of it. Whoever has the digest has to guess, and each guess costs what scrypt makes
it cost; and all the audit's passwords go in at once, so that all have to be guessed together. Therefore one
more password makes that anew which any password matters to, and nothing else.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

import numpy as np

from storage.entry import DigestType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from recovery.audit.ways import Ways
    from recovery.verify.parts import LogPart

_LEDGER = struct.Struct(">qqq")
_UNTOLD = 0
_COST = 1 << 14
"""Of scrypt: 16 MiB and some 50 ms for each guess."""


class Manners:
    """Tells them. Keeps what takes long: what stands for passwords, and for all ledgers."""

    def __init__(self) -> None:
        self._secrets: dict[tuple[bytes, bytes], bytes] = {}
        self._everything: dict[tuple[int, int], tuple[Ways, Mapping[int, int], bytes]] = {}
        """By the identity of both, which are held so that no others get it."""

    def of(self, part: LogPart, ways: Ways, steps: Mapping[int, int], salt: bytes) -> str:
        """The digest. `salt` is any bytes, and others in each report."""
        digest = hashlib.blake2b(digest_size=16)
        if part.flaws:
            digest.update(b"all" + self._all(ways, steps) + self._secret(ways, salt))
            return digest.hexdigest()
        for ledger in _ledgers(part):
            digest.update(_LEDGER.pack(ledger, _told(ways, ledger), steps.get(ledger, 1)))
        if _asks_for_passwords(part, ways):
            digest.update(self._secret(ways, salt))
        return digest.hexdigest()

    def _all(self, ways: Ways, steps: Mapping[int, int]) -> bytes:
        # There may be a million ledgers, and a thousand parts with flaws.
        both = id(ways), id(steps)
        if both not in self._everything:
            self._everything[both] = (ways, steps, _all(ways, steps))
        return self._everything[both][2]

    def _secret(self, ways: Ways, salt: bytes) -> bytes:
        passwords = _passwords(ways)
        if not passwords:
            return b""
        if (salt, passwords) not in self._secrets:
            self._secrets[salt, passwords] = hashlib.scrypt(passwords, salt=salt, n=_COST, r=8, p=1)
        return self._secrets[salt, passwords]


def _ledgers(part: LogPart) -> list[int]:
    return sorted({*np.unique(part.runs["ledger"]).tolist(), *part.types, *part.unverified})


def _told(ways: Ways, ledger: int) -> int:
    kind = ways.type_of(ledger)
    return _UNTOLD if kind is None else kind.value


def _asks_for_passwords(part: LogPart, ways: Ways) -> bool:
    return any(
        (ways.type_of(ledger) or part.types.get(ledger)) is DigestType.MAC
        or (ways.type_of(ledger) is None and ledger in part.unverified)
        for ledger in _ledgers(part)
    )


def _all(ways: Ways, steps: Mapping[int, int]) -> bytes:
    presumed = _UNTOLD if ways.presumed is None else ways.presumed.value
    declared = ((ledger, kind.value) for ledger, kind in ways.declared.items())
    striped = ((ledger, step) for ledger, step in steps.items() if step != 1)
    opened = ((ledger, 1) for ledger in ways.open)
    said: list[Iterable[tuple[int, int]]] = [[(0, presumed)], declared, opened, striped]
    packed = (_LEDGER.pack(kind, *pair) for kind, pairs in enumerate(said) for pair in sorted(pairs))
    return hashlib.blake2b(b"".join(packed)).digest()


def _passwords(ways: Ways) -> bytes:
    """All of them, each with its ledger; empty where there is none."""
    all_of_them = [] if ways.password is None else [(-1, ways.password)]
    all_of_them += sorted(ways.passwords.items())
    return b"".join(_LEDGER.pack(len(one), ledger, 0) + one for ledger, one in all_of_them)
