"""A change of a ledger's metadata that other clients and lost answers cannot confuse.

    decide    what shall be written follows from the newest metadata that are known; nothing may be to do
    write     if the metadata still have the version that was read
              written      done
              conflict     another client was first: read, decide again
              no answer    the write may have happened, or may still happen: read, decide again

After a lost answer the *content* decides, because a decision returns metadata that are already as they should
be. A lost write that takes place later must do no harm either: it names the version that it is based on. So a
change does not end while the metadata still have that version. If there is nothing to do any more, the same
content is written once again, so that the version is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.cluster.client.effects import Effect, MetadataRead, MetadataWritten, ReadMetadata, WriteMetadata
from storage.cluster.errors import (
    ClusterError,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedgerExistsOnMetadataServer,
    OutcomeUnknown,
)
from storage.cluster.metadata.update import Versioned
from storage.cluster.metadata.znodes import Gone, Unknown, Written

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.cluster.metadata.ledger import ClusterLedgerMetadata

_ATTEMPTS_MAX = 100
"""How often other clients may come first, or answers may be lost, before a change gives up."""


class MetadataChange:
    """One change. It is over when `result` is there."""

    def __init__(
        self, ledger_id: int, decide: Callable[[ClusterLedgerMetadata], ClusterLedgerMetadata]
    ) -> None:
        """`decide` returns what shall be written, or its argument if there is nothing to do, or raises."""
        self._ledger_id = ledger_id
        self._decide = decide
        self._wanted: ClusterLedgerMetadata
        self._base = -1
        """The version that the last write has named."""
        self._lost: Unknown | None = None
        """Set if the answer to the last write was lost."""
        self._attempts = 0
        self.result: Versioned[ClusterLedgerMetadata] | ClusterError | None = None

    def begin(self, known: Versioned[ClusterLedgerMetadata]) -> list[Effect]:
        """Begin with these metadata, which may be old."""
        try:
            self._wanted = self._decide(known.value)
        except ClusterError as error:
            self.result = error
            return []
        may_still_be_written = self._lost is not None and known.version == self._base
        if self._wanted == known.value and not may_still_be_written:
            self.result = known
            return []
        self._attempts += 1
        self._base = known.version
        return [WriteMetadata(self._wanted, known.version)]

    def metadata_written(self, answer: MetadataWritten) -> list[Effect]:
        self._lost = answer if isinstance(answer, Unknown) else None
        if isinstance(answer, Written):
            self.result = Versioned(self._wanted, answer.version)
        elif isinstance(answer, Gone):
            self.result = NoSuchLedgerExistsOnMetadataServer(self._ledger_id)
        elif self._attempts >= _ATTEMPTS_MAX:
            self.result = MetadataConflict(self._name, f"changed by others {_ATTEMPTS_MAX} times")
        else:
            return [ReadMetadata()]
        return []

    def metadata_read(self, answer: MetadataRead) -> list[Effect]:
        match answer:
            case Gone():
                self.result = NoSuchLedgerExistsOnMetadataServer(self._ledger_id)
            case Unknown(reason):
                unknown = None if self._lost is None else OutcomeUnknown(self._name, self._lost.reason)
                self.result = unknown or MetadataUnavailable(reason)
            case Versioned():
                return self.begin(answer)
        return []

    @property
    def _name(self) -> str:
        return f"ledger {self._ledger_id}"
