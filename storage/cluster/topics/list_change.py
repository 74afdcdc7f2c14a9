"""One change of a topic's list of ledgers: compare and set, whose answer may be lost. Pure.

    written      done
    conflict     another owner has changed the list: this one is fenced
    no answer    read the list, and let the content decide
                     it has still the old version      write the same once more
                     it is what was to be written      done
                     it is something else              fenced

The content decides safely because a list is written by one owner once: it names a ledger that only this owner
has created, or it lacks one. Writing it once more is safe also if the lost write takes place later, because
both name the same version, so that only one of them succeeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.errors import ClusterError, OutcomeUnknown
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

    def __init__(self, topic: str, data: bytes, version: int | None) -> None:
        self._topic = topic
        self._write = WriteList(data, version)
        self._lost: Unknown | None = None
        """Set if the answer to a write was lost."""
        self._attempts = 0
        self.result: int | ClusterError | None = None

    def begin(self) -> list[WriteList | ReadList]:
        self._attempts += 1
        return [self._write]

    def written(self, answer: ListWritten) -> list[WriteList | ReadList]:
        match answer:
            case Written(version):
                self.result = version
            case Created():
                self.result = 0
            case Unknown():
                self._lost = answer
                return self._read()
            case _ if self._lost is not None:
                return self._read()  # the conflict may be with the lost write
            case _:
                self.result = TopicFenced(self._topic)
        return []

    def read(self, answer: ListRead) -> list[WriteList | ReadList]:
        assert self._lost is not None
        if isinstance(answer, Unknown):
            return self._read()
        found = answer.stat.version if isinstance(answer, Node) else None
        if found != self._write.version:
            is_ours = isinstance(answer, Node) and answer.data == self._write.data
            self.result = found if is_ours and found is not None else TopicFenced(self._topic)
        elif self._attempts >= _ATTEMPTS_MAX:
            self.result = OutcomeUnknown(self._topic, self._lost.reason)
        else:
            return self.begin()
        return []

    def _read(self) -> list[WriteList | ReadList]:
        assert self._lost is not None
        self._attempts += 1
        if self._attempts >= _ATTEMPTS_MAX:
            self.result = OutcomeUnknown(self._topic, self._lost.reason)
            return []
        return [ReadList()]
