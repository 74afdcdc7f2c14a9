"""One change of a topic's list of ledgers: compare and set, whose answer may be lost. Pure.

    first        read the list; if it is not the one that this owner knows, version and content, it is fenced
    written      done
    conflict     another owner has changed the list: this one is fenced
    no answer    read the list, and let the content decide
                     it is still the known list        write the same once more
                     it is what was to be written      done
                     it is something else              fenced

The version alone does not say that a list is the known one: after the topic was deleted, the list of a new
topic of the same name begins with the same versions again. A list names a ledger that no other list names.

The content decides safely because a list is written by one owner once: it names a ledger that only this owner
has created, or it lacks one. Writing it once more is safe also if the lost write takes place later, because
both name the same version, so that only one of them succeeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.errors import ClusterError, MetadataUnavailable, OutcomeUnknown
from storage.cluster.metadata.znodes import Created, Gone, Node, Unknown, Written
from storage.cluster.topics.errors import TopicFenced

if TYPE_CHECKING:
    from storage.cluster.metadata.znodes import Conflict, Exists, NoParent

    ListWritten = Written | Created | Conflict | Exists | Gone | NoParent | Unknown
    ListRead = Node | Gone | Unknown

_ATTEMPTS_MAX = 30


class WriteList(NamedTuple):
    """Write the list if its node has this version; create the node if the version is `None`."""

    data: bytes
    version: int | None


class ReadList(NamedTuple):
    """Read the newest state, and not what a server that lags still shows."""


class ListChange:
    """A change under way. It is over when `result` is there: the new version, or why it is not done."""

    def __init__(self, topic: str, data: bytes, version: int | None, known: bytes = b"") -> None:
        """Replace the `known` list of this version by `data`; without a version there is no list yet."""
        self._topic = topic
        self._write = WriteList(data, version)
        self._known = known
        self._lost: Unknown | None = None
        """Set if the answer to a write was lost."""
        self._attempts = 0
        self.result: int | ClusterError | None = None

    @property
    def data(self) -> bytes:
        """The list that this change writes, encoded."""
        return self._write.data

    def begin(self) -> list[WriteList | ReadList]:
        return [self._write if self._write.version is None else ReadList()]

    def written(self, answer: ListWritten) -> list[WriteList | ReadList]:
        match answer:
            case Written(version):
                self.result = version
            case Created():
                self.result = 0
            case Unknown():
                self._lost = answer
                return self._read(answer.reason)
            case _ if self._lost is not None:
                return self._read(self._lost.reason)  # the conflict may be with the lost write
            case _:
                self.result = TopicFenced(self._topic)
        return []

    def read(self, answer: ListRead) -> list[WriteList | ReadList]:
        if isinstance(answer, Unknown):
            return self._read(answer.reason)
        if isinstance(answer, Gone):
            is_known = self._write.version is None
        else:
            is_known = answer.stat.version == self._write.version and answer.data == self._known
        if is_known:
            return self._again(self._write, "" if self._lost is None else self._lost.reason)
        if isinstance(answer, Node) and answer.data == self._write.data and self._lost is not None:
            self.result = answer.stat.version
        else:
            self.result = TopicFenced(self._topic)
        return []

    def _read(self, reason: str) -> list[WriteList | ReadList]:
        return self._again(ReadList(), reason)

    def _again(self, effect: WriteList | ReadList, reason: str) -> list[WriteList | ReadList]:
        """Go on, unless there were too many answers without a result."""
        self._attempts += 1
        if self._attempts < _ATTEMPTS_MAX:
            return [effect]
        is_certain = self._lost is None
        self.result = MetadataUnavailable(reason) if is_certain else OutcomeUnknown(self._topic, reason)
        return []
