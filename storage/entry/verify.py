"""Verification of many entries in one call.

With numpy all entries of a block are verified by one CRC, without it one by one. The results are the same.
numpy is never imported before the first call.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from storage.entry import format as entry_format
from storage.entry.digest import DigestCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.entry.digest import Buffer, Digester


@dataclass(frozen=True, slots=True, eq=False)
class EntryBounds:
    """Where the entries of a block lie: from the first byte after the length word to the end of the entry."""

    starts: Sequence[int]
    ends: Sequence[int]


class _BatchVerifier(Protocol):
    def mismatches(self, block: Buffer, bounds: EntryBounds, digester: Digester) -> list[int]: ...


@cache
def _numpy_verifier() -> _BatchVerifier | None:
    if find_spec("numpy") is None:
        return None
    module: _BatchVerifier = import_module("storage.entry.verify_numpy")
    return module


def mismatches(block: Buffer, bounds: EntryBounds, digester: Digester) -> list[int]:
    """Return the ascending numbers of the entries whose digest is wrong.

    All entries have this digest type.
    """
    assert digester.verifies, "nothing to verify with"
    if (verifier := _numpy_verifier()) is not None:
        return verifier.mismatches(block, bounds, digester)
    return mismatches_one_by_one(block, bounds, digester)


def mismatches_one_by_one(block: Buffer, bounds: EntryBounds, digester: Digester) -> list[int]:
    """Return the ascending numbers of the entries whose digest is wrong, without numpy."""
    view = memoryview(block)
    return [
        number
        for number, (start, end) in enumerate(zip(bounds.starts, bounds.ends, strict=True))
        if entry_format.check_digest(view[start:end], digester) is not DigestCheck.OK
    ]
