"""Entries of ledgers with several digest types in one chunk, verified together as far as possible.

Entries with a CRC are put side by side and verified at once. A MAC is verified one by one if its password is
known. If the type of a ledger is not declared, its first entries are left to the slow path of the walk, which
counts them as evidence; when the type is settled, its further entries are verified with the others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from crc32c import crc32c

from storage.entry import verify
from storage.entry.digest import DigestCheck, Digester
from storage.entry.format import HEAD, check_digest
from storage.entry.model import DigestType
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.verify import EntryBounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.model.runs import Fingerprints, Mask, Numbers
    from storage.entry.digest_inference import EntryVerifier

_EVIDENCE = {True: 4, False: 16}
"""The number of entries after which the type of a ledger is settled by majority: fewer if it is a CRC."""

UNKNOWN_MAX = 256
"""The number of entries that are verified together while the type of some of their ledgers is unknown."""

_PIECE = 512
_CRCS = (DigestType.CRC32C, DigestType.CRC32)
_WORD = 4
_WIDE = 8


class InferredTypes:
    """The digest type of each ledger, as far as it is known at this moment of a walk."""

    def __init__(self, policy: DigestPolicy, verifier: EntryVerifier) -> None:
        self._policy = policy
        self._verifier = verifier
        self._settled: dict[int, DigestType] = {}
        self._evidence_counts: Counter[int] = Counter()
        self._first_inferred: dict[int, DigestType | None] = {}
        self.needs_inference = policy.presumed is None or bool(policy.open)
        """Whether there may be ledgers whose type is known from their entries only."""
        self.others: Numbers = np.array(
            sorted(ledger for ledger, kind in policy.declared.items() if kind is not DigestType.CRC32C),
            dtype=np.int64,
        )
        """The ledgers whose type is known not to be CRC-32C."""

    def of(self, ledger_id: int) -> DigestType | None:
        """Return the type of the ledger, or `None` if it is not known yet."""
        return self._policy.type_of(ledger_id) or self._settled.get(ledger_id)

    def digester(self, ledger_id: int, kind: DigestType) -> Digester:
        return self._policy.digester(ledger_id, kind)

    def saw_proof_of(self, ledgers: Numbers, kind: DigestType = DigestType.CRC32C) -> None:
        """Note that entries of these ledgers carry a correct CRC, so that their type is certain."""
        for ledger_id in set(np.unique(ledgers).tolist()) - self._settled.keys():
            self._settle(ledger_id, kind)
            self._verifier.survey.note_verified(ledger_id, kind)

    def saw_entry(self, ledger_id: int) -> None:
        """Note that the slow path has read an entry of the ledger and counted it as evidence."""
        if self.of(ledger_id) is not None:
            return
        self._evidence_counts[ledger_id] += 1
        inferred = self._inferred(ledger_id)
        self._first_inferred.setdefault(ledger_id, inferred)
        if inferred is not None and self._evidence_counts[ledger_id] >= _EVIDENCE[inferred in _CRCS]:
            self._settle(ledger_id, inferred)

    @property
    def are_consistent(self) -> bool:
        """Whether every entry was verified with the type that its ledger is now known to have."""
        believed = (*self._first_inferred.items(), *self._settled.items())
        return all(self._inferred(ledger_id) is kind for ledger_id, kind in believed)

    def start_with(self, before: InferredTypes) -> None:
        """Start with what another walk over the same entries knew in the end."""
        for ledger_id in {*before._settled, *before._evidence_counts}:
            inferred = self._inferred(ledger_id)
            if inferred is not None and self.of(ledger_id) is None:
                self._settle(ledger_id, inferred)

    def _inferred(self, ledger_id: int) -> DigestType | None:
        inferred = self._verifier.digester(ledger_id)
        return None if inferred is None else inferred.digest_type

    def _settle(self, ledger_id: int, kind: DigestType) -> None:
        self._settled[ledger_id] = kind
        if kind is not DigestType.CRC32C and ledger_id not in self.others:
            self.others = np.append(self.others, ledger_id)

    def among(self, ledgers: Numbers) -> dict[int, DigestType]:
        """Return the type of each of these ledgers that is not CRC-32C."""
        candidates = np.array(sorted({*self.others.tolist(), *self._evidence_counts}), dtype=np.int64)
        known = {it: self._inferred(it) for it in candidates[np.isin(candidates, ledgers)].tolist()}
        return {it: kind for it, kind in known.items() if kind is not None and kind is not DigestType.CRC32C}


@dataclass(frozen=True, slots=True)
class BlockVerdict:
    """The result of verifying a block: the entries left to the slow path, and those that cannot be
    verified.
    """

    doubtful: list[int]
    unverified: Mapping[int, Numbers] = field(default_factory=dict)
    """For each ledger the indices of its unverifiable entries."""


@dataclass(frozen=True, slots=True, eq=False)
class EntryBlock:
    """Some consecutive entries of a chunk. `bounds` are as in `chunk_verify.VariedRecords`."""

    work: Any
    bounds: Numbers

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def body(self, index: int) -> memoryview:
        """Return the bytes of one entry."""
        begin, end = int(self.bounds[index]), int(self.bounds[index + 1])
        return memoryview(self.work)[begin + LENGTH_WORD_SIZE : end]

    def mismatches(self, indices: Numbers, kind: DigestType) -> list[int]:
        """Return which of these entries do not carry that CRC."""
        wrong: list[int] = []
        for start in range(0, len(indices), _PIECE):
            # In pieces, because where one entry is wrong all entries of its piece are verified one by one.
            piece = indices[start : start + _PIECE]
            sizes = self.bounds[piece + 1] - self.bounds[piece]
            with memoryview(self.work) as view:
                begins, ends = self.bounds[piece].tolist(), self.bounds[piece + 1].tolist()
                joined = b"".join([view[begin:end] for begin, end in zip(begins, ends, strict=True)])
            bounds = sizes.cumsum()
            found = EntryBounds((bounds - sizes + LENGTH_WORD_SIZE).tolist(), bounds.tolist())
            wrong += piece[verify.mismatches(joined, found, Digester(kind))].tolist()
        return wrong

    def digests(self, kinds: list[DigestType | None], inverse: Numbers) -> Fingerprints:
        """Return the digest of each entry as runs count it. `kinds` are by ledger, `inverse` is the ledger of
        each entry.
        """
        begins = self.bounds[:-1] + LENGTH_WORD_SIZE + HEAD.size
        sizes = self.bounds[1:] - begins
        widths = np.array([0 if kind is None else kind.width for kind in kinds])[inverse]
        found = np.zeros(len(self), dtype=np.uint64)
        for width, size in ((_WORD, _WORD), (_WIDE, _WIDE), (DigestType.MAC.width, _WIDE)):
            # An entry that is too short for its digest may be the last one, and no bytes after it may be
            # read.
            (of_it,) = ((widths == width) & (sizes >= width)).nonzero()
            found[of_it] = self._items(size)[begins[of_it]].view(f">u{size}")
        for index in ((widths == 0) | (sizes < widths)).nonzero()[0].tolist():
            found[index] = crc32c(self.body(index))
        return found

    def _items(self, size: int) -> Any:
        return np.ndarray(len(self.work) - size + 1, f"V{size}", self.work, 0, (1,))


def verify_block(
    block: EntryBlock, ledgers: Numbers, types: InferredTypes
) -> tuple[BlockVerdict, Fingerprints]:
    """Verify the entries, each with the digest type of its ledger."""
    ids, inverse = np.unique(ledgers, return_inverse=True)
    kinds = [types.of(ledger_id) for ledger_id in ids.tolist()]
    doubtful = _unknown(block, ids, inverse, kinds, types)
    unverified: dict[int, Numbers] = {}
    for kind in _CRCS:
        of_kind = np.array([known is kind for known in kinds])
        wrong = block.mismatches(of_kind[inverse].nonzero()[0], kind)
        if types.needs_inference and not wrong:
            types.saw_proof_of(ids[of_kind], kind)
        doubtful += wrong
    for number, known in enumerate(kinds):
        if known in (DigestType.MAC, DigestType.DUMMY):
            digester = types.digester(int(ids[number]), known)
            (entries,) = (inverse == number).nonzero()
            if digester.verifies:
                doubtful += _one_by_one(block, entries, digester)
            else:
                unverified[int(ids[number])] = entries
    return BlockVerdict(sorted(doubtful), unverified), block.digests(kinds, inverse)


def _unknown(
    block: EntryBlock, ids: Numbers, inverse: Numbers, kinds: list[DigestType | None], types: InferredTypes
) -> list[int]:
    """Return the entries of ledgers with an unknown type, unless all of them turn out to be CRC-32C."""
    unknown: Mask = np.array([kind is None for kind in kinds], dtype=np.bool_)
    (entries,) = unknown[inverse].nonzero()
    if not len(entries) or block.mismatches(entries, DigestType.CRC32C):
        return entries.tolist()
    types.saw_proof_of(ids[unknown])
    kinds[:] = [types.of(ledger_id) for ledger_id in ids.tolist()]
    return []


def _one_by_one(block: EntryBlock, entries: Numbers, digester: Digester) -> list[int]:
    return [
        index for index in entries.tolist() if check_digest(block.body(index), digester) is not DigestCheck.OK
    ]


def knows_types_of(ledgers: Numbers, types: InferredTypes) -> bool:
    """Return whether the type of each of these ledgers is known."""
    return all(types.of(ledger_id) is not None for ledger_id in np.unique(ledgers).tolist())
