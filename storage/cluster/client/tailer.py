"""A ledger that is followed while it is written.

    entries up to the last add confirmed are read and shown, in order; several are read at the same time, so
                 that a reader which is behind catches up
    after them   a bookie of the write set of the next entry is asked to answer when more is confirmed (a
                 long poll); without news the next bookie is asked, because one bookie may lack the news.
                 When none of them has any, the next round begins a little later: a bookie answers at once if
                 the ledger is fenced there, and a recovery may take long
    closed       entries up to the end are shown, and then the tailer ends

The last add confirmed of a bookie is a hint: it may be old, and it is never too high, because each entry
brings only what its writer knew to be acknowledged. A ledger that is closed before an entry that was shown
ends the tailer with `LedgerCutShort`. Our recovery cannot cause that. Others can, which confirm entries while
they recover a ledger.

An entry that cannot be read is tried again with newer metadata, because its copies may have moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.cluster.client.distribution import quorums_of
from storage.cluster.client.effects import FollowEnded, ReadMetadata, Send, ShowEntry, Token, Wait
from storage.cluster.client.reader import READ, EntryRead, NotThere
from storage.cluster.errors import (
    ClusterError,
    CopiesUnreadable,
    LedgerCutShort,
    NoSuchLedgerExistsOnMetadataServer,
)
from storage.cluster.metadata.update import Versioned
from storage.cluster.metadata.znodes import Gone
from storage.cluster.wire.messages import LAST_ENTRY, FoundEntry, LongPoll
from storage.entry.model import NO_ENTRY, Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.client.effects import (
        BookieAnswer,
        Effect,
        MetadataRead,
        MetadataWritten,
        Sending,
    )
    from storage.cluster.client.entries import EntryCodec
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata

POLL_S = 30.0
_RETRY_S = 1.0
_ATTEMPTS_MAX = 10
"""How often an entry is tried before the tailer gives up."""
READ_AHEAD = 16
"""Entries that are read at the same time."""


class LedgerTailer:
    """Shows the entries of one ledger, from one on. For one thread."""

    def __init__(
        self,
        entries: EntryCodec,
        metadata: Versioned[ClusterLedgerMetadata],
        first_entry: int = 0,
        poll_s: float = POLL_S,
        read_ahead: int = READ_AHEAD,
    ) -> None:
        self._entries = entries
        self._metadata = metadata
        self._quorums = quorums_of(metadata.value)
        self._poll_ms = int(poll_s * 1000)
        self._next = first_entry
        self.last_add_confirmed = NO_ENTRY
        """The largest that a bookie has told. It never goes back."""
        self._read_ahead = read_ahead
        self._reads: dict[int, EntryRead] = {}
        """By entry id: the reads of the next entries, which may have ended."""
        self._attempts = 0
        """Failed attempts to read the next entry."""
        self._polls = 0
        """The number of the last poll. It also says which bookie is asked."""
        self._without_news = 0
        """How many bookies have had no news, one after the other."""
        self._is_polling = False
        self._is_waiting = False
        self._is_paused = False
        self.has_ended = False

    def begin(self) -> list[Effect]:
        return self._go_on()

    def pause(self) -> None:
        """Ask for no more entries, because those that were shown are not taken yet."""
        self._is_paused = True

    def resume(self) -> list[Effect]:
        """Ask for entries again."""
        self._is_paused = False
        return self._go_on()

    def stop(self) -> None:
        """End without a report."""
        self.has_ended = True

    def metadata_changed(self, metadata: Versioned[ClusterLedgerMetadata]) -> list[Effect]:
        """Note newer metadata, which the driver watches."""
        if metadata.version <= self._metadata.version:
            return []
        self._metadata = metadata
        # A poll in the old ensemble, or for entries after the end, is not waited for.
        self._is_polling = False
        return self._go_on()

    # ── the order ─────────────────────────────────────────────────────────────────────────────────────

    def _go_on(self) -> list[Effect]:
        """Read the next entries if there are any, else wait for one, unless the ledger has ended."""
        if self.has_ended or self._is_paused or self._is_waiting:
            return []
        end = self._end_of_ledger
        if self._metadata.value.is_closed and self._next > end:
            is_cut = self._next > end + 1
            return self._end(LedgerCutShort(self._entries.ledger_id, end, self._next - 1) if is_cut else None)
        if self._next <= end:
            self._is_polling = False
            return self._begin_reads(end)
        return [] if self._is_polling else self._poll()

    @property
    def _end_of_ledger(self) -> int:
        """The last entry that may be shown, as far as it is known."""
        metadata = self._metadata.value
        end = metadata.last_entry if metadata.is_closed else self.last_add_confirmed
        assert end is not None, "closed metadata say where the ledger ends"
        return end

    def _begin_reads(self, end: int) -> list[Effect]:
        effects: list[Effect] = []
        for entry_id in range(self._next, min(end + 1, self._next + self._read_ahead)):
            if entry_id not in self._reads:
                bookies = self._metadata.value.segment_of(entry_id).bookies
                read = self._reads[entry_id] = EntryRead(self._entries, self._quorums, bookies, entry_id)
                effects += read.begin()
        return effects

    def _poll(self) -> list[Effect]:
        self._is_polling = True
        self._polls += 1
        write_set = self._quorums.write_set(self._next)
        index = write_set[self._polls % len(write_set)]
        bookie = self._metadata.value.segments[-1].bookies[index]
        known, ledger_id = self._next - 1, self._entries.ledger_id
        request = LongPoll(ledger_id, LAST_ENTRY, known, self._poll_ms, wants_entry=True)
        return [Send(bookie, request, Token(self._next, index, READ + self._polls))]

    def _show(self, entry: Entry) -> ShowEntry:
        self._next += 1
        self._attempts = self._without_news = 0
        return ShowEntry(entry)

    def _end(self, error: ClusterError | None) -> list[Effect]:
        self.has_ended = True
        return [FollowEnded(error)]

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────

    def answered(self, token: Token, answer: BookieAnswer) -> list[Effect]:
        if self.has_ended:
            return []
        if token.sending == READ:
            return self._entry_answered(token, answer)
        if not self._is_polling or token.sending != READ + self._polls:
            return []
        self._is_polling = False
        if not isinstance(answer, FoundEntry):
            return self._wait()
        self._confirm(answer.lac)
        if answer.entry is not None and self._next <= self.last_add_confirmed:
            entry = self._entries.decode(self._next, answer.entry)
            if entry is not None:
                return [self._show(entry), *self._go_on()]
        if self._next > self.last_add_confirmed:
            self._without_news += 1
            if self._without_news % self._quorums.write == 0:
                return self._wait()
        return self._go_on()

    def _entry_answered(self, token: Token, answer: BookieAnswer) -> list[Effect]:
        read = self._reads.get(token.entry_id)
        if read is None:
            return []
        effects: list[Effect] = [*read.answered(token, answer)]
        self._confirm(read.last_add_confirmed)
        # The ledger may have been closed before an entry that is being read.
        while self._next <= self._end_of_ledger and (first := self._reads.get(self._next)) is not None:
            if first.result is None:
                break
            del self._reads[self._next]
            if not isinstance(first.result, Entry):
                return effects + self._try_again(first.result)
            effects.append(self._show(first.result))
        return effects + self._go_on()

    def _try_again(self, why: NotThere | ClusterError) -> list[Effect]:
        self._attempts += 1
        if self._attempts < _ATTEMPTS_MAX:
            return self._wait()
        if isinstance(why, NotThere):
            bookies = self._metadata.value.segment_of(self._next).bookies
            reasons = dict.fromkeys(bookies, "no such entry")
            why = CopiesUnreadable(self._entries.ledger_id, self._next, reasons)
        return self._end(why)

    def _confirm(self, lac: int | None) -> None:
        if lac is not None and lac > self.last_add_confirmed:
            self.last_add_confirmed = lac

    def _wait(self) -> list[Effect]:
        self._is_waiting = True
        return [Wait(_RETRY_S)]

    def waited(self) -> list[Effect]:
        """Begin the next attempt, with newer metadata."""
        return [] if self.has_ended else [ReadMetadata()]

    def metadata_read(self, answer: MetadataRead) -> list[Effect]:
        self._is_waiting = False
        if isinstance(answer, Gone):
            return self._end(NoSuchLedgerExistsOnMetadataServer(self._entries.ledger_id))
        if isinstance(answer, Versioned) and answer.version > self._metadata.version:
            self._metadata = answer
        return self._go_on()

    def added(self, sending: Sending, entry_ids: Sequence[int], answer: BookieAnswer) -> list[Effect]:
        raise AssertionError((sending, entry_ids, answer))

    def metadata_written(self, answer: MetadataWritten) -> list[Effect]:
        raise AssertionError(answer)
