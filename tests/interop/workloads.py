"""Seeded workloads on real stores of ours. A workload that is killed runs in a child process.

    python workloads.py DIRECTORY SEED        run it, and print every event as a line

A request is reported before the call and its answer after it. If the process is killed between the two, the
request may or may not have taken effect.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from observed import NO_LAC, LedgerAccess, ObservedLedger
from store_internals import confirm

from recovery import open_store
from storage import StoreConfig
from storage.entry import format as entry_format
from storage.entry.digest import digester, master_key
from storage.entry.model import DigestType, Entry
from storage.errors import LedgerFenced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from our_store import StoreContent
    from torn_group import TornGroup

    from storage.ledger import Ledger
    from storage.store import Store

    Event = list[Any]

STEPS = 45
REPLICA = 9
"""The ledger to which entries are added with given ids, some of them twice."""
FENCED = (2, 5, 11, 12)
"""Ledgers that are fenced and deleted at times. The last one never gets an entry before that."""
WRITTEN = (1, 2, 5, 11, 1 << 40)

_KIB = 1 << 10
_SIZES = (0, 1, 30, 30, 200, 1000, 5000)
_PASSWORDS = (b"", b"secret", "öffne dich".encode())


def config_of(seed: int) -> StoreConfig:
    """Return a configuration with small sizes, so that a short workload rolls, freezes and checkpoints."""
    dice = Random(f"config {seed}")
    return StoreConfig(
        memtable_size_max=dice.choice([8, 32, 512]) * _KIB,
        entry_size_max=8 * _KIB,
        group_size_max=dice.choice([2, 8, 16]) * _KIB,
        journal_size=dice.choice([48, 96, 512]) * _KIB,
        journal_alignment=dice.choice([4096, 4096, 512]),
        # With many backups all journals stay, and a bookie can be started on the journals alone.
        journal_max_backups=dice.choice([0, 1000, 1000]),
        entry_log_size_max=dice.choice([12, 64, 1024]) * _KIB,
        index_size_max=64 << 20,
        checkpoint_interval_s=None,
        idle_seal_s=None,
        # Collections are steps of the workload, and take every log that has dead records.
        collection_interval_s=None,
        compaction_minor=0.99,
        compaction_major=0.99,
        compaction_rate=None,
    )


def keeps_all_journals(seed: int) -> bool:
    return config_of(seed).journal_max_backups > STEPS


def accesses_of(seed: int) -> dict[int, LedgerAccess]:
    """Return the ledgers of the workload."""
    dice = Random(f"ledgers {seed}")
    return {
        ledger_id: LedgerAccess(dice.choice(list(DigestType)), dice.choice(_PASSWORDS))
        for ledger_id in sorted({*WRITTEN, *FENCED, REPLICA})
    }


# ── what the caller knows ─────────────────────────────────────────────────────────────────────────────────


@dataclass
class ExpectedContent:
    """The content that the events of a workload require and allow."""

    answered: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By ledger and entry id, the payload."""
    asked: set[tuple[int, bytes]] = field(default_factory=set)
    """Ledgers and payloads that were passed to an add, answered or not."""
    rewritten: set[int] = field(default_factory=set)
    """Ledgers in which an id may have had another entry before."""
    fenced: set[int] = field(default_factory=set)
    fencing: set[int] = field(default_factory=set)
    confirmed: dict[int, int] = field(default_factory=dict)
    confirming: set[tuple[int, int]] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    """Ledgers whose deletion was asked for at some time."""
    going: set[int] = field(default_factory=set)
    """Deleted ledgers whose deletion was not answered: they may be there or gone."""

    def record(self, event: Event) -> None:
        """Record one event: its name, its ledger and its arguments."""
        what, ledger_id, *rest = event
        getattr(self, f"_{what}")(ledger_id, *rest)

    def _asked_for(self, ledger_id: int, *payloads: str) -> None:
        self.asked |= {(ledger_id, bytes.fromhex(payload)) for payload in payloads}

    def _was_answered(self, ledger_id: int, *entries: tuple[int, str]) -> None:
        for entry_id, payload in entries:
            self.answered[ledger_id, entry_id] = bytes.fromhex(payload)

    def _rewrites(self, ledger_id: int) -> None:
        self.rewritten.add(ledger_id)

    def _is_fencing(self, ledger_id: int) -> None:
        self.fencing.add(ledger_id)

    def _has_fenced(self, ledger_id: int) -> None:
        self.fenced.add(ledger_id)

    def _is_confirming(self, ledger_id: int, number: int) -> None:
        self.confirming.add((ledger_id, number))

    def _has_confirmed(self, ledger_id: int, number: int) -> None:
        self.confirmed[ledger_id] = max(number, self.confirmed.get(ledger_id, NO_LAC))

    def _is_deleting(self, ledger_id: int) -> None:
        self.deleted.add(ledger_id)
        self.going.add(ledger_id)

    def _has_deleted(self, ledger_id: int) -> None:
        self.answered = {ids: payload for ids, payload in self.answered.items() if ids[0] != ledger_id}
        self.confirmed.pop(ledger_id, None)
        for ledgers in (self.fenced, self.fencing, self.going):
            ledgers.discard(ledger_id)

    def violations(self, view: StoreContent, torn: TornGroup) -> Iterator[str]:
        """Yield what is wrong with the content that our recovery shows, if the torn group may be lost."""
        gone = self.going - {*view.shown}
        payloads = view.payloads()
        for (ledger_id, entry_id), payload in self.answered.items():
            found = payloads.get((ledger_id, entry_id))
            # If an id was written again, a later payload may be there although its add was not answered.
            is_excused = (ledger_id, entry_id) in torn.entries or ledger_id in self.rewritten | gone
            if found != payload and not is_excused:
                yield f"entry {entry_id} of ledger {ledger_id} was answered, our recovery shows {found!r:.60}"
        for (ledger_id, entry_id), payload in payloads.items():
            if (ledger_id, payload) not in self.asked:
                yield f"entry {entry_id} of ledger {ledger_id} is {payload!r:.60}, which was never written"
        for ledger_id in {*view.shown, *self.fenced, *self.confirmed} - torn.ledgers - gone:
            yield from self._wrong_facts(ledger_id, view.shown.get(ledger_id, ObservedLedger()))

    def _wrong_facts(self, ledger_id: int, shown: ObservedLedger) -> Iterator[str]:
        if ledger_id in self.fenced and not shown.fenced:
            yield f"ledger {ledger_id} was fenced, and our recovery shows it as open"
        if shown.fenced and ledger_id not in self.fencing:
            yield f"ledger {ledger_id} is fenced, although no fence was requested"
        least = self.confirmed.get(ledger_id, NO_LAC)
        if shown.explicit_lac < least:
            yield f"ledger {ledger_id}: {least} was confirmed, our recovery says {shown.explicit_lac}"
        if shown.explicit_lac != NO_LAC and (ledger_id, shown.explicit_lac) not in self.confirming:
            yield f"ledger {ledger_id}: our recovery says {shown.explicit_lac}, which was never confirmed"


# ── playing ───────────────────────────────────────────────────────────────────────────────────────────────


class InteropWorkload:
    """One seed's program."""

    def __init__(self, directory: Path | str, seed: int, report: Callable[[Event], None]) -> None:
        self._directory = directory
        self._config = config_of(seed)
        self._accesses = accesses_of(seed)
        self._report = report
        self._dice = Random(f"workload {seed}")
        self._written = 0
        self._store = self._open()

    def play(self) -> None:
        """Run all steps. The store stays open."""
        steps = (
            (self._append, 28),
            (self._append_many, 20),
            (self._submit, 10),
            (self._place, 12),
            (self._confirm, 7),
            (self._checkpoint, 5),
            (self._recover, 5),
            (self._fence, 3),
            (self._reopen, 3),
            (self._delete, 2),
            (self._collect, 2),
        )
        choices, weights = zip(*steps, strict=True)
        for _ in range(STEPS):
            (step,) = self._dice.choices(choices, weights)
            step()

    def close(self) -> None:
        self._store.close()

    def _open(self) -> Store:
        return open_store(self._directory, self._config)

    def _ledger(self, ledger_id: int) -> Ledger:
        access = self._accesses[ledger_id]
        return self._store.ledger(ledger_id, access.digest_type, access.password)

    def _payload(self) -> bytes:
        self._written += 1
        return self._written.to_bytes(4, "big") + self._dice.randbytes(self._dice.choice(_SIZES))

    # ── adds ──────────────────────────────────────────────────────────────────────────────────────────

    def _add(self, count: int, add: Callable[[Ledger, list[bytes]], list[int]]) -> None:
        ledger = self._ledger(self._dice.choice(WRITTEN))
        payloads = [self._payload() for _ in range(count)]
        if ledger.is_fenced:
            with suppress(LedgerFenced):
                raise AssertionError(f"a fenced ledger has taken {add(ledger, payloads)}")
            return
        self._ask(ledger.id, payloads)
        self._answer(ledger.id, add(ledger, payloads), payloads)

    def _ask(self, ledger_id: int, payloads: list[bytes]) -> None:
        self._report(["asked_for", ledger_id, *(payload.hex() for payload in payloads)])

    def _answer(self, ledger_id: int, entry_ids: list[int], payloads: list[bytes]) -> None:
        told = [[one, payload.hex()] for one, payload in zip(entry_ids, payloads, strict=True)]
        self._report(["was_answered", ledger_id, *told])

    def _append(self) -> None:
        self._add(1, lambda ledger, payloads: [ledger.append(payloads[0])])

    def _append_many(self) -> None:
        self._add(self._dice.randint(2, 8), lambda ledger, payloads: [*ledger.append_many(payloads)])

    def _submit(self) -> None:
        def submit(ledger: Ledger, payloads: list[bytes]) -> list[int]:
            futures = [ledger.submit(payload) for payload in payloads]
            return [future.result() for future in futures]

        self._add(self._dice.randint(1, 5), submit)

    def _place(self) -> None:
        """Add an entry as a replica gets it: ids have gaps, and some ids come twice."""
        last = self._ledger(REPLICA).last_entry_id
        end = 0 if last is None else last + 1
        entry_id = max(0, end + self._dice.choice([0, 0, 0, 2, -1, -3]))
        if entry_id < end:
            self._report(["rewrites", REPLICA])
        access, payload = self._accesses[REPLICA], self._payload()
        self._ask(REPLICA, [payload])
        entry = Entry(REPLICA, entry_id, entry_id - 1, 10_000 + entry_id, payload)
        self._store.add(entry, access.digest_type, access.password)
        self._answer(REPLICA, [entry_id], [payload])

    def _recover(self) -> None:
        """Add an entry to a fenced ledger, as a client does that recovers the ledger."""
        ledger = self._ledger(self._dice.choice(FENCED))
        if not ledger.is_fenced:
            return
        access, last, payload = self._accesses[ledger.id], ledger.last_entry_id, self._payload()
        entry_id = 0 if last is None else last + 1
        entry = Entry(ledger.id, entry_id, entry_id - 1, 10_000 + entry_id, payload)
        data = entry_format.encode(entry, digester(access.digest_type, access.password))
        self._ask(ledger.id, [payload])
        self._store.bookie.recover(data, master_key(access.password))
        self._answer(ledger.id, [entry_id], [payload])

    # ── fences, confirmations, deletes
    # ───────────────────────────────────────────────────────────────────────

    def _fence(self) -> None:
        ledger = self._ledger(self._dice.choice(FENCED))
        self._report(["is_fencing", ledger.id])
        ledger.fence()
        self._report(["has_fenced", ledger.id])

    def _confirm(self) -> None:
        ledger, number = self._ledger(self._dice.choice([*WRITTEN, *FENCED])), self._dice.randint(0, 30)
        self._report(["is_confirming", ledger.id, number])
        confirm(ledger, number)  # also after the end, as a bookie's writer may
        self._report(["has_confirmed", ledger.id, number])

    def _delete(self) -> None:
        ledger = self._ledger(self._dice.choice(FENCED))
        if ledger.exists:
            self._report(["is_deleting", ledger.id])
            ledger.delete()
            self._report(["has_deleted", ledger.id])

    # ── the store itself ──────────────────────────────────────────────────────────────────────────────

    def _checkpoint(self) -> None:
        self._store.checkpoint()

    def _collect(self) -> None:
        """Move what lives out of logs with dead records, and remove the logs in which nothing lives."""
        assert self._store.collect().problems == ()

    def _reopen(self) -> None:
        self._store.close()
        self._store = self._open()


def play(directory: Path, seed: int) -> ExpectedContent:
    """Run the workload, and close the store."""
    known = ExpectedContent()
    workload = InteropWorkload(directory, seed, known.record)
    workload.play()
    workload.close()
    return known


def kill(directory: Path, seed: int) -> ExpectedContent:
    """Run the workload in another process, and kill that with SIGKILL somewhere in the middle."""
    known, at = ExpectedContent(), Random(f"kill {seed}").randint(STEPS // 2, 2 * STEPS - 5)
    child = subprocess.Popen(
        [sys.executable, __file__, directory, str(seed)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        # The pipe still contains the events that were reported before the kill; they are read too.
        for number, line in enumerate(child.stdout):
            known.record(json.loads(line))
            if number == at:
                child.kill()
    assert child.returncode in (0, -9), f"the writer has ended with {child.returncode}"
    return known


def _main(directory: str, seed: str) -> None:
    def report(event: Event) -> None:
        # One write per event, because the reader relies on whole lines.
        os.write(sys.stdout.fileno(), (json.dumps(event) + "\n").encode())

    InteropWorkload(directory, int(seed), report).play()
    os._exit(0)  # ending without closing the store is a kill too


if __name__ == "__main__":
    _main(*sys.argv[1:])
