"""The copy of a fragment's entries to one bookie. Pure.

Each entry is read from the bookies of its write set, its digest is verified, and the same bytes are sent to
the target as the add of a recovery, which a fenced ledger takes, too. The copy is over when the target has
answered *every* add: only then may the metadata name it.

Only the entries that are striped to the fragment's index are copied. Others would be copies that no reader
looks for.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from recovery.autorecovery.check import CopyState, judge
from storage.cluster.client.effects import Effect, Send, Token, Wait
from storage.cluster.client.reader import EntryRead, reason_of
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddEntry, AddOptions, CodeAnswer
from storage.entry.model import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from recovery.autorecovery.fragments import Fragment
    from storage.cluster.client.effects import BookieAnswer
    from storage.cluster.client.entries import EntryCodec

_REPAIRING = AddOptions(is_recovery=True)
_ADD = 1
"""The number of the add of an entry; its reads have 0. Each is sent once by a copy."""

_PAUSE_S = 0.1
"""A copy with a limit pauses each time when it has sent the bytes that the limit allows in this time."""


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """How fast entries are copied."""

    entries_ahead: int = 8
    """Entries that are under way at the same time. Each takes memory of its size. More of them are copied
    faster, and delay the adds of writers to the same bookies more.
    """
    bytes_per_s: int | None = None
    """`None` for no limit."""


class CopyFailure(enum.Enum):
    LOST = "all its bookies have answered, and none has a good copy"
    ABSENT = "no registered bookie has a good copy, and one that may have it is not registered"
    UNREADABLE = "no good copy was found, and a bookie that may have one did not answer"
    TARGET = "the target did not take an entry"


class Copied(NamedTuple):
    """The target has every entry."""

    entries: int
    size: int
    """Bytes of the entries."""


class CopyFailed(NamedTuple):
    """Some entries were not copied."""

    failure: CopyFailure
    entry_id: int
    """The first entry that was noticed."""
    reason: str


class FragmentCopy:
    """Copies entries of one fragment. It is over when `result` is there, and nothing is under way then."""

    def __init__(
        self,
        entries: EntryCodec,
        fragment: Fragment,
        ids: Iterable[int],
        target: str,
        registered: AbstractSet[str],
        limits: CopyLimits,
    ) -> None:
        """Copy the entries of these ids. The fragment's own bookie is asked last for them."""
        self._entries = entries
        self._fragment = fragment
        self._to_copy: Iterator[int] = iter(ids)
        self._target = target
        self._registered = registered
        self._asked_last = frozenset(fragment.bookies) - registered | {fragment.bookie}
        self._limits = limits
        self._reads: dict[int, EntryRead] = {}
        self._silent: dict[int, CopyFailure] = {}
        """By entry under way, if a bookie has given no definite answer: the failure that this would be."""
        self._adds: dict[int, int] = {}
        """By entry that is being added: its size."""
        self._since_pause = 0
        self._is_pausing = False
        self._failed: CopyFailed | None = None
        self.copied = Copied(0, 0)
        """The bytes and entries that the target has taken until now, even if the copy fails."""
        self.result: Copied | CopyFailed | None = None

    def begin(self) -> list[Effect]:
        return self._proceed()

    def answered(self, token: Token, answer: BookieAnswer) -> list[Effect]:
        entry_id = token.entry_id
        if token.sending == _ADD:
            size = self._adds.pop(entry_id)
            if isinstance(answer, CodeAnswer) and answer.code is Code.OK:
                self.copied = Copied(self.copied.entries + 1, self.copied.size + size)
            else:
                self._fail(CopyFailure.TARGET, entry_id, f"{self._target}: {reason_of(answer)}")
            return self._proceed()
        if judge(self._entries, entry_id, answer) is CopyState.UNREACHABLE:
            self._note_silence(entry_id, self._fragment.bookies[token.bookie_index])
        read = self._reads[entry_id]
        effects: list[Effect] = [*read.answered(token, answer)]
        if read.result is not None:
            del self._reads[entry_id]
            effects += self._read_ended(entry_id, read)
        return effects + self._proceed()

    def waited(self) -> list[Effect]:
        self._is_pausing = False
        return self._proceed()

    def _note_silence(self, entry_id: int, bookie: str) -> None:
        if bookie in self._registered:
            self._silent[entry_id] = CopyFailure.UNREADABLE
        else:
            self._silent.setdefault(entry_id, CopyFailure.ABSENT)

    def _read_ended(self, entry_id: int, read: EntryRead) -> list[Effect]:
        found = read.result
        if not isinstance(found, Entry):
            failure = self._silent.pop(entry_id, CopyFailure.LOST)
            self._fail(failure, entry_id, f"entry {entry_id}: {failure.value}")
            return []
        self._silent.pop(entry_id, None)
        if self._failed is not None:
            return []
        data = self._entries.encoded_again(found, found.last_add_confirmed)
        self._adds[entry_id] = len(data)
        self._since_pause += len(data)
        key, ledger_id = self._entries.master_key, self._entries.ledger_id
        add = AddEntry(ledger_id, entry_id, key, data, _REPAIRING, b"")
        return [Send(self._target, add, Token(entry_id, self._fragment.key.index, _ADD))]

    def _proceed(self) -> list[Effect]:
        """Read further entries as the limits allow, or end."""
        effects: list[Effect] = []
        limit = self._limits.bytes_per_s
        if limit is not None and self._since_pause >= limit * _PAUSE_S and not self._is_pausing:
            # The pause is as long as the limit gives these bytes, so that large entries do not exceed it.
            effects.append(Wait(self._since_pause / limit))
            self._since_pause, self._is_pausing = 0, True
        while (
            self._failed is None
            and not self._is_pausing
            and len(self._reads) + len(self._adds) < self._limits.entries_ahead
            and (entry_id := next(self._to_copy, None)) is not None
        ):
            fragment = self._fragment
            read = EntryRead(self._entries, fragment.quorums, fragment.bookies, entry_id, self._asked_last)
            self._reads[entry_id] = read
            effects += read.begin()
        if not (self._reads or self._adds or self._is_pausing):
            self.result = self._failed or self.copied
        return effects

    def _fail(self, failure: CopyFailure, entry_id: int, reason: str) -> None:
        self._failed = self._failed or CopyFailed(failure, entry_id, reason)
