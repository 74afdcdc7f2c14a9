"""The check of bookies that are suspected where a ledger grows. Pure.

The last segment of a ledger that is not closed has no fixed end, so it has no fragments. But what a suspect
missed while it was away had been sent by the time at which it was back, and what is sent later is its
writer's matter, as with any bookie. So the *end* is the largest entry that a bookie of the ensemble has now,
and a suspect has missed nothing if it has every entry up to the end that belongs to it:

    ask      every bookie of the ensemble for its last entry. The largest is the end
    check    every entry up to there at the suspects
    wait     if one is missing, it may be on its way: look for it again, a few times

Nothing is copied here: an entry that is missing may have been given up by its writer. The mark stays then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.autorecovery.check import SAMPLE_OF_ALL, FragmentState, LedgerCheck
from recovery.autorecovery.fragments import Fragment, FragmentKey
from storage.cluster.client.effects import Effect, Send, Token, Wait
from storage.cluster.client.reader import READ, reason_of
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import LAST_ENTRY, CodeAnswer, FoundEntry, ReadEntry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from recovery.autorecovery.check import FragmentFinding
    from storage.cluster.client.distribution import Quorums
    from storage.cluster.client.effects import BookieAnswer
    from storage.cluster.client.entries import EntryCodec
    from storage.cluster.metadata.ledger import LedgerSegment

_LOOKS_MAX = 3
_PAUSE_S = 1.0
"""The pause between two looks: an entry that is on its way arrives within it."""


class GrowingCheck:
    """Checks suspects in the last segment of an open ledger. It is over when `result` is there."""

    def __init__(
        self,
        entries: EntryCodec,
        segment: LedgerSegment,
        quorums: Quorums,
        suspects: AbstractSet[str],
        registered: AbstractSet[str],
    ) -> None:
        self._entries = entries
        self._segment = segment
        self._quorums = quorums
        self._suspects = suspects
        self._registered = registered
        self._unanswered = set(range(len(segment.bookies)))
        """The bookies that have not told their last entry, by index."""
        self._end = segment.first_entry - 1
        self._silent: str | None = None
        self._looks = 0
        self._check: LedgerCheck
        self.result: str | None = None
        """Why a suspect may lack entries; empty if none does."""

    def begin(self) -> list[Effect]:
        """Ask for the last entries."""
        request = ReadEntry(self._entries.ledger_id, LAST_ENTRY)
        return [
            Send(bookie, request, Token(LAST_ENTRY, index, READ))
            for index, bookie in enumerate(self._segment.bookies)
        ]

    def answered(self, token: Token, answer: BookieAnswer) -> list[Effect]:
        if token.entry_id != LAST_ENTRY:
            return self._checked([*self._check.answered(token, answer)])
        self._unanswered.discard(token.bookie_index)
        self._note_last(self._segment.bookies[token.bookie_index], answer)
        if self._unanswered:
            return []
        if self._silent is not None:
            self.result = self._silent
            return []
        first = self._segment.first_entry
        indexes = (index for index, one in enumerate(self._segment.bookies) if one in self._suspects)
        return self._look([FragmentKey(first, index) for index in indexes])

    def _note_last(self, bookie: str, answer: BookieAnswer) -> None:
        match answer:
            case FoundEntry(bytes() as data) if (entry := self._entries.decode_any(data)) is not None:
                self._end = max(self._end, entry.entry_id)
            case CodeAnswer(Code.NO_ENTRY | Code.NO_LEDGER):
                pass
            case FoundEntry():
                self._silent = f"the last entry of {bookie} is damaged"
            case _:
                self._silent = f"bookie {bookie} does not tell its last entry: {reason_of(answer)}"

    def waited(self) -> list[Effect]:
        return self._look(
            [FragmentKey(min(one.missing), one.fragment.key.index) for one in self._check.found]
        )

    def _look(self, begins: Sequence[FragmentKey]) -> list[Effect]:
        """Read the entries of suspects, of each from this one on to the end."""
        self._looks += 1
        fragments = [Fragment(key, self._segment.bookies, self._end + 1, self._quorums) for key in begins]
        self._check = LedgerCheck(self._entries, fragments, self._registered, lambda _: SAMPLE_OF_ALL)
        return self._checked([*self._check.begin()])

    def _checked(self, effects: list[Effect]) -> list[Effect]:
        found = self._check.result
        if found is None:
            return effects
        if not found:
            self.result = ""
        elif self._looks < _LOOKS_MAX and all(map(_is_missing_only, found)):
            return [Wait(_PAUSE_S)]
        else:
            self.result = _reason(found[0])
        return effects


def _is_missing_only(finding: FragmentFinding) -> bool:
    is_clear = finding.state is FragmentState.INCOMPLETE and finding.unreachable is None
    return is_clear and not finding.damaged


def _reason(finding: FragmentFinding) -> str:
    bookie = finding.fragment.bookie
    if finding.missing or finding.damaged:
        entry_id = min((*finding.missing, *finding.damaged))
        return f"{bookie} lacks entry {entry_id}, where the ledger grows"
    return f"bookie {bookie} gives no useful answer: {finding.unreachable}"
