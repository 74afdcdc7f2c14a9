"""The add that meets nobody: the order of a turn, without one.

What is spared is all that many callers need to share a turn. And it is one function, where a turn takes two
dozen: behind a sync every line of code and every object comes from far away, and fetching them is most of
what an add costs beside it (docs/adr/0026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage import grouping
from storage.codec import record as record_codec
from storage.entry import ID_MAX, NO_ENTRY, DigestType
from storage.journal_writer import SMALL
from storage.tail import LedgerEnd
from storage.turnstile import who_asks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.access import Access
    from storage.commit import Committer
    from storage.entrance import Limits
    from storage.journals import Journals
    from storage.latch import Latch
    from storage.memtable import Slot
    from storage.tail import Tail

_FRONT_SIZE = record_codec.FRONT_SIZE
_CRC32C = DigestType.CRC32C
_FAR = ID_MAX >> 1
"""Ids and lengths beyond it are looked at more closely, in a turn: they could outgrow their fields."""

_new_tuple = tuple.__new__


class Alone:
    """Adds without a turn, while nobody else adds. Any thread may call."""

    def __init__(
        self, committer: Committer, journals: Journals, slot: Slot, latch: Latch, limits: Limits
    ) -> None:
        self._committer = committer
        self._turnstile = committer.turnstile
        self._news = committer.news
        self._journals = journals
        self._slot = slot
        self._latch = latch
        self._limits = limits

    def append(  # noqa: C901 - in one function: see above
        self, tail: Tail, access: Access, payloads: Sequence[bytes]
    ) -> int | None:
        """The first id, all of it durable, if nobody else adds just now; `None` if nothing has happened."""
        turnstile, latch = self._turnstile, self._latch
        is_led = turnstile.is_led
        if is_led:
            return None  # as it would be under the lock, nearly always
        me, first_id, has_begun, is_durable, is_done = who_asks(), NO_ENTRY, False, False, False
        try:
            with turnstile.lock:
                # Mostly all is as follows. What is not, a turn sees to.
                journals, active, turn = self._journals, self._slot.tables.active, turnstile.open
                journal, load, facts = journals.active, turn.load, tail.facts
                if turnstile.is_led or turn.waiting or load.runs or load.statements or load.deletions:
                    return None  # what waits already has ids before these, and is written first
                if access is not tail.admitted or tail.is_held or facts.digest_type is not _CRC32C:
                    return None
                if journal is None or journal.keyed.get(tail.ledger_id) != facts.master_key:
                    return None
                first_id, length, confirmed = tail.next_id, tail.next_length, tail.end.entry_id
                if not latch.is_open or active.size >= self._limits.memtable_size_max:
                    return None
                if first_id > _FAR or length > _FAR:
                    return None
                assert confirmed != NO_ENTRY, "the first entry is added in a turn, which has more to say"
                count = len(payloads)
                if count == 1:
                    (payload,) = payloads
                    length += len(payload)
                    fronts = record_codec.encode_front(tail.ledger_id, first_id, confirmed, length, payload)
                    size = _FRONT_SIZE + len(payload)
                else:
                    fronts = record_codec.encode_fronts(tail.ledger_id, first_id, confirmed, length, payloads)
                    length = record_codec.ledger_length(fronts)
                    size = len(fronts) + length - tail.next_length
                if size > self._limits.group_size_max or journal.end + size > journal.ample_until:
                    return None
                # Ids are handed out. No call in between, so that no Ctrl-C comes in between either.
                tail.next_id, tail.next_length = first_id + count, length
                turnstile.alone, turnstile.is_led, has_begun = me, True, True
            # The order of `Committer.stages`, for one run.
            if count == 1 and size <= SMALL:
                journal.write_one(fronts, payloads[0], size, journals.durable_up_to)
            else:
                journal.write(grouping.group_of(fronts, payloads, size), journals.durable_up_to)
            journals.durable_up_to = journal.sync()
            journals.groups += 1
            active.insert_parts(tail.ledger_id, first_id, fronts, payloads, size)
            active.covers_until = journals.durable_up_to
            tail.end = _new_tuple(LedgerEnd, (first_id + count - 1, length))
            if confirmed > tail.lac_seen:
                tail.lac_seen = confirmed
            is_durable = True
            if active.size >= self._limits.memtable_size_max:
                self._slot.freeze()
            is_done = True
        except BaseException as error:
            if not has_begun:
                raise
            if not is_done:
                # Not by `fail`: a second Ctrl-C as that begins must not leave a gap in the ids, nor a table
                # that is half frozen.
                latch.failure, latch.is_open = latch.failure or error, False
            if not isinstance(error, Exception):
                raise
            latch.fail(error)
            if not is_durable:
                raise latch.as_told(error) from error
        finally:
            if has_begun:
                try:
                    turnstile.end_alone()
                    self._news.notify()
                except BaseException:
                    # A Ctrl-C, or two: whoever has come meanwhile must not wait for ever.
                    try:
                        turnstile.end_alone()
                        self._news.notify()
                    except BaseException:
                        turnstile.end_alone()
                        self._news.notify()
                        raise
                    raise
        if latch.failure is None:
            self._committer.on_turn()
        return first_id
