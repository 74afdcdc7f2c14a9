"""Whole blocks of entries at once: where they lie, and which of their digests are wrong.

For catch-up reads, replay of a bookie's journals, compaction and audits, which all meet long runs of plain
entries. A block is split up to the first thing that is not a plain entry (a special record, a ledgers map,
the end of the block, damage); what it is, the record codec of the file says.

With numpy a block is verified by one CRC over all of its entries, without it one by one. The answers are the
same. numpy is never imported before the first call.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.codec.digest import Buffer, Digester

PREFIX = struct.Struct(">iqq")


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """The entries in a block: `starts[i]` is the first byte of one, behind its length, `ends[i]` its end."""

    starts: Sequence[int]
    ends: Sequence[int]
    split_to: int
    """Everything in the block before this offset is an entry or padding."""

    def __len__(self) -> int:
        return len(self.starts)


class Kernel(Protocol):
    """The two ways to do it: `frames_plain` and `frames_numpy`."""

    def split_log(self, block: Buffer, start: int) -> Frames:
        """As `split_log` below."""

    def split_journal(self, block: Buffer, start: int) -> Frames:
        """As `split_journal` below."""

    def mismatches(self, block: Buffer, frames: Frames, digester: Digester) -> list[int]:
        """As `mismatches` below."""


@cache
def _kernel() -> Kernel:
    name = "frames_numpy" if find_spec("numpy") else "frames_plain"
    module: Kernel = import_module(f"storage.codec.{name}")
    return module


def split_log(block: Buffer, start: int = 0) -> Frames:
    """The entries of an entry log's block, from a length word on."""
    return _kernel().split_log(block, start)


def split_journal(block: Buffer, start: int = 0) -> Frames:
    """The entries of a journal's block (version 5 or 6), from a length word on; padding is passed over."""
    return _kernel().split_journal(block, start)


def mismatches(block: Buffer, frames: Frames, digester: Digester) -> list[int]:
    """Which of the entries (as indices, ascending) do not carry the right digest. All of this type."""
    assert digester.verifies, "nothing to verify with"
    return _kernel().mismatches(block, frames, digester)
