"""How work joins the open group: an exception before it has joined leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stepped_store import Site
from store_internals import StoreInternals

from storage import Overloaded
from storage.commit import committer as committer_module
from storage.commit.pending import PendingEntries, PendingFence, PendingGroup, PendingLac
from storage.entry import format as entry_format
from storage.entry import record_format
from storage.entry.credentials import Access
from storage.entry.digest import Digester, mac_key, master_key
from storage.entry.ledger_record import LedgerRecord
from storage.entry.model import DigestType
from storage.journal import format as journal_format
from storage.ledgers.metadata import plain
from storage.ledgers.state import EMPTY, LedgerEnd, LedgerState

if TYPE_CHECKING:
    from storage.commit.pending import Pending

WRITER = Access(master_key(b"password"), mac_key=mac_key(b"password"))
MAC_WRITER = Access(master_key(b"password"), DigestType.MAC, mac_key(b"password"))
STRANGER = Access(master_key(b"another"))
NEW = plain(7)
KNOWN = LedgerRecord(7, 1, DigestType.CRC32C, master_key=WRITER.master_key)
SOME = LedgerEnd(4, 100)
PACKET = entry_format.encode_lac(7, 9, Digester(DigestType.CRC32C))


def interrupt(*_: object) -> bytes:
    """Stands for the last call before work joins, which a signal handler interrupts."""
    raise KeyboardInterrupt


def content(state: LedgerState, group: PendingGroup) -> tuple[object, ...]:
    """All that joining may change."""
    ids = state.next_id, state.next_length
    known = state.facts, state.is_claimed, state.admitted
    return *ids, *known, list(group.entries), group.controls, group.claims, group.size


WORK: dict[str, tuple[Pending, str]] = {
    "an append": (PendingEntries(LedgerState(7, SOME, KNOWN), WRITER, (b"x",)), "encode_front"),
    "a first append": (PendingEntries(LedgerState(7, EMPTY, NEW), WRITER, (b"x",)), "encode_front"),
    "one with a MAC": (PendingEntries(LedgerState(7, EMPTY, NEW), MAC_WRITER, (b"x",)), "encode_fronts_with"),
    "several": (PendingEntries(LedgerState(7, SOME, KNOWN), WRITER, (b"x", b"y")), "encode_fronts"),
    "a fence": (PendingFence(LedgerState(7, SOME, KNOWN), WRITER), "encode_fence"),
    "a first fence": (PendingFence(LedgerState(7, EMPTY, NEW), WRITER), "encode_fence"),
    "a confirmation": (PendingLac(LedgerState(7, SOME, KNOWN), WRITER, PACKET), "encode_explicit_lac"),
}


@pytest.mark.parametrize("name", WORK)
def test_work_that_is_interrupted_before_it_joins_has_changed_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, last_call = WORK[name]
    state, group = work.state, PendingGroup()
    assert state is not None
    before = content(state, group)
    module = record_format if hasattr(record_format, last_call) else journal_format
    with monkeypatch.context() as patched:
        patched.setattr(module, last_call, interrupt)
        with pytest.raises(KeyboardInterrupt):
            work.join(group)
    assert content(state, group) == before
    work.join(group)
    assert work.group is group
    assert content(state, group) != before


def test_ids_go_on_after_work_that_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    state, group = LedgerState(7, SOME, KNOWN), PendingGroup()
    PendingEntries(state, WRITER, (b"x",)).join(group)
    with monkeypatch.context() as patched:
        patched.setattr(record_format, "encode_front", interrupt)
        with pytest.raises(KeyboardInterrupt):
            PendingEntries(state, WRITER, (b"abc",)).join(group)
    PendingEntries(state, WRITER, (b"y",)).join(group)
    assert [work.first_id for work in group.entries] == [5, 6]


def test_a_claim_that_did_not_join_leaves_the_ledger_to_another_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, group = LedgerState(7, EMPTY, NEW), PendingGroup()
    with monkeypatch.context() as patched:
        patched.setattr(record_format, "encode_fronts_with", interrupt)
        with pytest.raises(KeyboardInterrupt):
            PendingEntries(state, MAC_WRITER, (b"abc",)).join(group)
    work = PendingEntries(state, STRANGER, (b"x",))
    work.join(group)
    assert (work.first_id, work.length, state.facts.digest_type) == (0, 1, DigestType.CRC32C)


def test_the_time_to_wait_for_room_is_counted_from_the_first_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, now = StoreInternals(Site().open()), 100.0
    monkeypatch.setattr(committer_module, "monotonic", lambda: now)
    work = PendingEntries(engine.tail(7), WRITER, (b"x",))
    give_up_at = engine.wait_for_room(work)
    assert give_up_at == 100.0
    assert engine.wait_for_room(work, give_up_at) == give_up_at
    now += 0.001
    # There is room, as each time before; but another has taken it each time.
    with pytest.raises(Overloaded):
        engine.wait_for_room(work, give_up_at)
