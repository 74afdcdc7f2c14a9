"""Entries of ledgers of several digest types in one chunk: verified together as far as that goes.

Those under a CRC are put side by side and verified at once. A MAC is verified one by one where its password
is known. Of a ledger whose type nobody has declared the first entries go to the careful walk, which counts
them as evidence; when that is settled, its further entries go with the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from crc32c import crc32c

from storage.codec import frames
from storage.codec.digest import DigestCheck, Digester
from storage.codec.entry import HEAD, check_digest
from storage.codec.frames import Frames
from storage.entry import DigestType
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.chunk_columns import Mask
    from recovery.audit.chunk_proof import Bytes
    from recovery.audit.ways import Ways
    from recovery.verify.runs import Fingerprints, Numbers
    from storage.codec.survey import EntryVerifier

_EVIDENCE = {True: 4, False: 16}
"""After so many entries of a ledger its type is settled: what most of them speak for, if that is a CRC."""

UNKNOWN_MAX = 256
"""So many entries are looked at together while there are ledgers among them of which nothing is known."""

_PIECE = 512
_CRCS = (DigestType.CRC32C, DigestType.CRC32)
_WORD = 4
_WIDE = 8


class Types:
    """Which digest type each ledger has, as far as is known at this moment of a walk."""

    def __init__(self, ways: Ways, verifier: EntryVerifier) -> None:
        self._ways = ways
        self._verifier = verifier
        self._settled: dict[int, DigestType] = {}
        self._looked_at: Counter[int] = Counter()
        self._first_told: dict[int, DigestType | None] = {}
        self.asks = ways.presumed is None or bool(ways.open)
        """Whether there may be ledgers whose type only their entries tell."""
        self.others: Numbers = np.array(
            sorted(ledger for ledger, kind in ways.declared.items() if kind is not DigestType.CRC32C),
            dtype=np.int64,
        )
        """The ledgers that are known to be of another type than CRC-32C."""

    def of(self, ledger_id: int) -> DigestType | None:
        """The type of that ledger; `None`: not known yet."""
        return self._ways.type_of(ledger_id) or self._settled.get(ledger_id)

    def digester(self, ledger_id: int, kind: DigestType) -> Digester:
        return self._ways.digester(ledger_id, kind)

    def have_proven(self, ledgers: Numbers, kind: DigestType = DigestType.CRC32C) -> None:
        """Entries of these carry a CRC that is right: there is no doubt of their type."""
        for ledger_id in set(np.unique(ledgers).tolist()) - self._settled.keys():
            self._settle(ledger_id, kind)
            self._verifier.survey.saw_proof(ledger_id, kind)

    def has_looked_at(self, ledger_id: int) -> None:
        """The careful walk has met an entry of that ledger, and counted it as evidence."""
        if self.of(ledger_id) is not None:
            return
        self._looked_at[ledger_id] += 1
        told = self._told(ledger_id)
        self._first_told.setdefault(ledger_id, told)
        if told is not None and self._looked_at[ledger_id] >= _EVIDENCE[told in _CRCS]:
            self._settle(ledger_id, told)

    @property
    def were_right(self) -> bool:
        """Whether what an entry was verified with is what is known of its ledger now."""
        believed = (*self._first_told.items(), *self._settled.items())
        return all(self._told(ledger_id) is kind for ledger_id, kind in believed)

    def believe(self, before: Types) -> None:
        """What another walk over the same entries was told in the end is known from the beginning."""
        for ledger_id in {*before._settled, *before._looked_at}:
            told = self._told(ledger_id)
            if told is not None and self.of(ledger_id) is None:
                self._settle(ledger_id, told)

    def _told(self, ledger_id: int) -> DigestType | None:
        told = self._verifier.digester(ledger_id)
        return None if told is None else told.digest_type

    def _settle(self, ledger_id: int, kind: DigestType) -> None:
        self._settled[ledger_id] = kind
        if kind is not DigestType.CRC32C and ledger_id not in self.others:
            self.others = np.append(self.others, ledger_id)

    def among(self, ledgers: Numbers) -> dict[int, DigestType]:
        """How the entries of these were verified, where that was not CRC-32C."""
        candidates = np.array(sorted({*self.others.tolist(), *self._looked_at}), dtype=np.int64)
        known = {it: self._told(it) for it in candidates[np.isin(candidates, ledgers)].tolist()}
        return {it: kind for it, kind in known.items() if kind is not None and kind is not DigestType.CRC32C}


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of some entries: which are for the careful walk, and how many nothing can verify."""

    doubtful: list[int]
    unverified: Mapping[int, Numbers] = field(default_factory=dict)
    """For each ledger with such entries which they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some entries in a chunk, one behind the other; `bounds` as in `chunk_proof.Scattered`."""

    work: Bytes
    bounds: Numbers

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def body(self, index: int) -> memoryview:
        """One entry's bytes."""
        begin, end = int(self.bounds[index]), int(self.bounds[index + 1])
        return memoryview(self.work)[begin + LENGTH_WORD_SIZE : end]

    def mismatches(self, indices: Numbers, kind: DigestType) -> list[int]:
        """Which of them do not carry that CRC."""
        wrong: list[int] = []
        for start in range(0, len(indices), _PIECE):
            # In pieces: where one is wrong only its neighbours are looked at one by one.
            piece = indices[start : start + _PIECE]
            sizes = self.bounds[piece + 1] - self.bounds[piece]
            with memoryview(self.work) as view:
                begins, ends = self.bounds[piece].tolist(), self.bounds[piece + 1].tolist()
                joined = b"".join([view[begin:end] for begin, end in zip(begins, ends, strict=True)])
            bounds = sizes.cumsum()
            found = Frames((bounds - sizes + LENGTH_WORD_SIZE).tolist(), bounds.tolist(), len(joined))
            wrong += piece[frames.mismatches(joined, found, Digester(kind))].tolist()
        return wrong

    def digests(self, kinds: list[DigestType | None], inverse: Numbers) -> Fingerprints:
        """The digest of each entry as runs count it; `kinds` are of ledgers, `inverse` the ledger of each."""
        begins = self.bounds[:-1] + LENGTH_WORD_SIZE + HEAD.size
        sizes = self.bounds[1:] - begins
        widths = np.array([0 if kind is None else kind.width for kind in kinds])[inverse]
        found = np.zeros(len(self), dtype=np.uint64)
        for width, size in ((_WORD, _WORD), (_WIDE, _WIDE), (DigestType.MAC.width, _WIDE)):
            # One that is too short for its digest may be the last of all: behind it nothing can be read.
            (of_it,) = ((widths == width) & (sizes >= width)).nonzero()
            found[of_it] = self._items(size)[begins[of_it]].view(f">u{size}")
        for index in ((widths == 0) | (sizes < widths)).nonzero()[0].tolist():
            found[index] = crc32c(self.body(index))
        return found

    def _items(self, size: int) -> Any:
        return np.ndarray(len(self.work) - size + 1, f"V{size}", self.work, 0, (1,))


def judge(block: Block, ledgers: Numbers, types: Types) -> tuple[Judged, Fingerprints]:
    """Verifies the entries, each as its ledger's type wants it."""
    ids, inverse = np.unique(ledgers, return_inverse=True)
    kinds = [types.of(ledger_id) for ledger_id in ids.tolist()]
    doubtful = _unknown(block, ids, inverse, kinds, types)
    unverified: dict[int, Numbers] = {}
    for kind in _CRCS:
        of_kind = np.array([known is kind for known in kinds])
        wrong = block.mismatches(of_kind[inverse].nonzero()[0], kind)
        if types.asks and not wrong:
            types.have_proven(ids[of_kind], kind)
        doubtful += wrong
    for number, known in enumerate(kinds):
        if known in (DigestType.MAC, DigestType.DUMMY):
            digester = types.digester(int(ids[number]), known)
            (entries,) = (inverse == number).nonzero()
            if digester.verifies:
                doubtful += _one_by_one(block, entries, digester)
            else:
                unverified[int(ids[number])] = entries
    return Judged(sorted(doubtful), unverified), block.digests(kinds, inverse)


def _unknown(
    block: Block, ids: Numbers, inverse: Numbers, kinds: list[DigestType | None], types: Types
) -> list[int]:
    """The entries of ledgers of which nothing is known, unless all of them turn out to be CRC-32C."""
    unknown: Mask = np.array([kind is None for kind in kinds], dtype=np.bool_)
    (entries,) = unknown[inverse].nonzero()
    if not len(entries) or block.mismatches(entries, DigestType.CRC32C):
        return entries.tolist()
    types.have_proven(ids[unknown])
    kinds[:] = [types.of(ledger_id) for ledger_id in ids.tolist()]
    return []


def _one_by_one(block: Block, entries: Numbers, digester: Digester) -> list[int]:
    return [
        index for index in entries.tolist() if check_digest(block.body(index), digester) is not DigestCheck.OK
    ]


def knows_all(ledgers: Numbers, types: Types) -> bool:
    """Whether the type of each of these is known."""
    return all(types.of(ledger_id) is not None for ledger_id in np.unique(ledgers).tolist())
