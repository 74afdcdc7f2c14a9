"""Planted bugs of the client of several bookies, and of model bookies. The cluster laboratory finds each.

Some are what Apache BookKeeper does, or has done. Their names begin with the number of its issue, or with N
and the number of the defect, as in docs/replication.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from code_edits import Drop, Edit, EditAddress, InsertAfter, InsertBefore, Replace, Rewrite
from real_store_schedules import RealStoreSchedule

from recovery.clusterlab.deferred import DeferredSchedule
from recovery.clusterlab.workload import Schedule

CHANGE = "storage.cluster.client.metadata_change"
COPIES = "storage.cluster.client.copies"
DEFERRED = "storage.cluster.client.deferred_writer"
DISTRIBUTION = "storage.cluster.client.distribution"
READER = "storage.cluster.client.reader"
RECOVERER = "storage.cluster.client.recoverer"
TAILER = "storage.cluster.client.tailer"
WRITER = "storage.cluster.client.writer"
BOOKIES = "recovery.clusterlab.bookies"
FIRST_ADD = "storage.cluster.bookie.first_add"
METADATA = "recovery.clusterlab.metadata"


@dataclass(frozen=True, slots=True)
class PlantedClusterBug:
    """A bug, and the invariants of which one has to find it."""

    name: str
    rule: str
    changes: tuple[EditAddress, ...]
    invariants: frozenset[str]
    seeds: range = range(20_000)
    """The schedules to play. Rare bugs have few, of which one is known to find them."""
    scenario: str | None = None
    """A schedule that is written by hand, for what chance finds too rarely."""
    kind: type[Schedule] = Schedule
    """What the random schedules play."""


def _bug(name: str, rule: str, module: str, function: str, edit: Edit, *invariants: str) -> PlantedClusterBug:
    return PlantedClusterBug(name, rule, (EditAddress(module, function, edit),), frozenset(invariants))


def _deferred(
    name: str, rule: str, module: str, function: str, edit: Edit, *invariants: str
) -> PlantedClusterBug:
    """Return a bug of ledgers with deferred syncs or explicit last adds confirmed."""
    return replace(_bug(name, rule, module, function, edit, *invariants), kind=DeferredSchedule)


READS_DO_NOT_FENCE = EditAddress(
    RECOVERER, "TailRead.begin", Replace("ReadEntry(...)", "ReadEntry(ledger_id, self.entry_id)")
)


CLUSTER_BUGS = (
    # ── the writer ───────────────────────────────────────────────────────────────────────────────────
    _bug(
        "acknowledged-with-a-copy-too-few",
        "an entry is acknowledged when Qa bookies have it",
        COPIES,
        "EntriesUnderWay.take_complete",
        Replace("self._quorums.ack", "self._quorums.ack - 1"),
        "T2",
    ),
    _bug(
        "acknowledged-during-a-change",
        "nothing is acknowledged while the ensemble is being changed",
        WRITER,
        "LedgerWriter._acknowledge",
        Replace("self.state is not WriterState.OPEN", "False"),
        "T2",
        "O6",
    ),
    _bug(
        "3005-acknowledged-before-copies-are-sent-again",
        "nothing is acknowledged before all displaced copies are sent again",
        WRITER,
        "LedgerWriter._end_change",
        Rewrite(
            "effects: list[Effect] = [SendAdds(self._copies.use_ensemble(...))]",
            "self.state = WriterState.OPEN\n"
            "effects = self._acknowledge()\n"
            "self.state = WriterState.CHANGING\n"
            "effects.append(SendAdds(self._copies.use_ensemble(metadata.value.segments[-1].bookies)))",
        ),
        "T2",
        "O6",
    ),
    _bug(
        "1591-new-ensemble-before-the-metadata-name-it",
        "a new bookie gets no entry before the metadata name it",
        WRITER,
        "LedgerWriter._changed",
        Rewrite(
            "return metadata.with_ensemble_change(...)",
            "self._copies.use_ensemble(changed)\n"
            "return metadata.with_ensemble_change(self.last_confirmed + 1, changed)",
        ),
        "T2",
        "T3",
        "O6",
        "O8",
    ),
    _bug(
        "answers-of-earlier-sendings-count",
        "only the answer to the last sending of a copy counts",
        COPIES,
        "EntriesUnderWay._stored",
        Replace("sending in entry.sent", "True"),
        "T2",
    ),
    _bug(
        "displaced-copies-still-count",
        "a copy at a bookie that was replaced does not count any more",
        COPIES,
        "EntriesUnderWay._send_again",
        Drop("entry.stored.difference_update(displaced)"),
        "T2",
    ),
    _bug(
        "n10-an-add-needs-a-bookie-that-is-not-replaced",
        "a change that replaces only some bookies leaves no entry waiting",
        WRITER,
        "LedgerWriter._changed",
        Replace("self._copies.can_complete(kept)", "True"),
        "O8",
    ),
    _bug(
        "failures-during-a-change-are-forgotten",
        "a failure during a change is part of the next change",
        WRITER,
        "LedgerWriter._is_change_outdated",
        Rewrite("return ...", "return False"),
        "O8",
    ),
    _bug(
        "the-writer-goes-on-after-a-fence",
        "metadata that are not open end the writer for good",
        WRITER,
        "LedgerWriter._end_change",
        Rewrite("return self._lose(error)", "self.state = WriterState.OPEN\nreturn self._acknowledge()"),
        "T2",
        "O4",
        "O8",
    ),
    _bug(
        "the-change-begins-after-the-entries-under-way",
        "the new ensemble has all entries that are not acknowledged",
        WRITER,
        "LedgerWriter._changed",
        Replace("self.last_confirmed + 1", "self.last_pushed + 1"),
        "T2",
        "O2",
    ),
    _bug(
        "the-last-add-confirmed-is-the-last-add-pushed",
        "an entry brings the last acknowledged entry, and not the last one that was sent",
        WRITER,
        "LedgerWriter.add",
        Replace("self.last_confirmed", "self.last_pushed - 1"),
        "O2",
        "T2",
        "T3",
    ),
    _bug(
        "length-counted-twice",
        "the length is that of the payloads",
        WRITER,
        "LedgerWriter.add",
        Rewrite("self.length += len(payload)", "self.length += 2 * len(payload)"),
        "T4",
        "O3",
    ),
    _bug(
        "closed-with-the-length-of-everything-sent",
        "the length of a closed ledger is that of its entries",
        WRITER,
        "LedgerWriter._closed",
        Replace("self.length_confirmed", "self.length"),
        "O3",
    ),
    _bug(
        "closed-after-the-last-entry-sent",
        "a writer closes its ledger after the last acknowledged entry",
        WRITER,
        "LedgerWriter._closed",
        Replace("self.last_confirmed", "self.last_pushed"),
        "T3",
        "T4",
        "O3",
    ),
    _bug(
        "a-writer-closes-a-closed-ledger",
        "the end of a closed ledger never changes",
        WRITER,
        "LedgerWriter._closed",
        Replace("not metadata.is_closed", "True"),
        "O3",
    ),
    _bug(
        "late-failures-are-not-reported",
        "a writer reports the bookies that lack copies of acknowledged entries",
        COPIES,
        "EntriesUnderWay.answered",
        Drop("self.lacking.add(sending.bookie)"),
        "O6",
    ),
    _bug(
        "copies-that-were-never-sent-are-not-reported",
        "a writer reports the bookies that it has left out",
        COPIES,
        "EntriesUnderWay._note_lacking",
        Drop("self.lacking.add(self.bookies[index])"),
        "O6",
    ),
    _bug(
        "a-refusal-of-a-replaced-bookie-ends-the-writer",
        "a bookie that has failed, and is being replaced, cannot end the writer",
        COPIES,
        "EntriesUnderWay.answered",
        Drop("if sending.bookie_index in self.failed: ..."),
        "O11",
    ),
    # ── metadata ─────────────────────────────────────────────────────────────────────────────────────
    _bug(
        "a-lost-answer-taken-for-success",
        "a write without an answer may not have taken place",
        CHANGE,
        "MetadataChange.metadata_written",
        InsertBefore(
            "self._lost = ...",
            "if isinstance(answer, Unknown): answer = Written(0)",
        ),
        "T1",
        "T2",
        "O8",
    ),
    PlantedClusterBug(
        "a-lost-write-may-still-take-place",
        "a change does not end while a lost write of it may take place",
        (
            EditAddress(
                CHANGE,
                "MetadataChange.begin",
                Replace("self._lost is not None and known.version == self._base", "False"),
            ),
        ),
        frozenset({"T2", "O6"}),
        range(4_500, 4_700),
    ),
    _bug(
        "a-conflict-is-written-over",
        "after a conflict the newest metadata decide",
        CHANGE,
        "MetadataChange.metadata_read",
        Rewrite("return self.begin(answer)", "return [WriteMetadata(self._wanted, answer.version)]"),
        "T2",
        "O3",
        "O5",
        "O8",
    ),
    _bug(
        "versions-are-ignored",
        "a write of metadata names the version that it is based on",
        METADATA,
        "ModelMetadata._write",
        Replace("version != self.node.version", "False"),
        "T2",
        "O3",
        "O5",
    ),
    PlantedClusterBug(
        "watches-end-with-their-session",
        "watches are set again in a new session, and metadata are read after each pause",
        (
            EditAddress(
                METADATA,
                "ModelMetadata._reconnect",
                Drop("for watch in session.watches: ..."),
            ),
            EditAddress(
                TAILER,
                "LedgerTailer.metadata_read",
                Rewrite("self._metadata = answer", "self._is_polling = False"),
            ),
        ),
        frozenset({"O8"}),
    ),
    # ── the recovery ─────────────────────────────────────────────────────────────────────────────────
    PlantedClusterBug(
        "2614-reads-of-the-tail-do-not-fence",
        "each read of the tail fences the bookie",
        (READS_DO_NOT_FENCE,),
        frozenset({"T2", "O4"}),
        scenario="late-add",
    ),
    _bug(
        "2908-errors-count-as-missing",
        "an entry is missing only if bookies have said so",
        RECOVERER,
        "TailRead.answered",
        Rewrite("self.unclear[self._bookies[index]] = reason_of(answer)", "self._without.add(index)"),
        "T2",
    ),
    _bug(
        "one-bookie-without-it-makes-an-entry-missing",
        "Qw - Qa + 1 bookies without an entry make it missing, not fewer",
        RECOVERER,
        "TailRead.is_missing",
        Replace("self._quorums.missing", "1"),
        "T2",
    ),
    # Because each read of the tail fences, these two lose nothing alone.
    PlantedClusterBug(
        "reads-begin-after-the-first-fence",
        "reads that do not fence begin when the fenced bookies cover the ensemble",
        (
            READS_DO_NOT_FENCE,
            EditAddress(
                RECOVERER,
                "LedgerRecoverer._fence_answered",
                Replace("self._quorums.is_covered(self._fenced)", "self._fenced"),
            ),
        ),
        frozenset({"T2", "O4"}),
    ),
    PlantedClusterBug(
        "coverage-of-the-write-quorum",
        "no set of Qa bookies stays outside of the fence",
        (
            READS_DO_NOT_FENCE,
            EditAddress(
                DISTRIBUTION,
                "Quorums.is_covered",
                Replace("sum(...) < self.ack", "sum(index not in answered for index in window) < self.write"),
            ),
        ),
        frozenset({"T2", "O4"}),
        scenario="late-add",
    ),
    _bug(
        "2615-entries-before-the-last-segment-are-looked-for-in-it",
        "the entries before the last segment were acknowledged",
        RECOVERER,
        "LedgerRecoverer._begin_fence",
        Replace("last.first_entry - 1", "NO_ENTRY"),
        "T2",
        "O8",
    ),
    _bug(
        "n9-a-recovery-confirms-what-it-adds-again",
        "entries that are added again bring the last add confirmed that the fence has found",
        RECOVERER,
        "LedgerRecoverer._add_again",
        Replace("self._base", "self._last"),
        "O1",
        "O2",
    ),
    _bug(
        "the-tail-is-read-from-new-bookies",
        "the tail is read from the ensemble as it was",
        RECOVERER,
        "LedgerRecoverer._go_on",
        Replace("self._metadata.value.segments[-1].bookies", "self._copies.bookies"),
        "T2",
    ),
    _bug(
        "n11-the-length-of-nothing-added-again-is-not-read",
        "the length comes from the header of the last entry",
        RECOVERER,
        "LedgerRecoverer._measure",
        Replace("self._last > self._base or self._last == NO_ENTRY", "True"),
        "O3",
    ),
    _bug(
        "closed-before-entries-are-added-again",
        "a ledger is closed when all its entries have Qa copies",
        RECOVERER,
        "LedgerRecoverer._go_on",
        Replace(
            "effects if self._copies.pending else effects + self._measure()", "effects + self._measure()"
        ),
        "T2",
        "T3",
        "O3",
    ),
    _bug(
        "a-recovery-closes-a-closed-ledger",
        "the first close counts",
        RECOVERER,
        "LedgerRecoverer._closed",
        Rewrite(
            "if metadata.is_closed: ...",
            "if metadata.is_closed:\n    return metadata.closed(self._last, self._length)",
        ),
        "O3",
    ),
    _bug(
        "new-ensembles-of-a-recovery-are-not-written",
        "the close names the bookies that have the entries",
        RECOVERER,
        "LedgerRecoverer._closed",
        Drop("for first_entry, bookies in self._ensembles: ..."),
        "T3",
    ),
    _bug(
        "new-ensembles-of-a-recovery-begin-too-early",
        "the new ensemble has the entries that were not added again yet",
        RECOVERER,
        "LedgerRecoverer._replace_failed",
        Replace("self._last + 1", "self._base + 1"),
        "T2",
        "T3",
    ),
    _bug(
        "a-bookie-without-the-ledger-is-no-answer",
        "a bookie that has nothing of a ledger is fenced all the same",
        RECOVERER,
        "LedgerRecoverer._fence_answered",
        InsertAfter(
            "bookies = self._metadata.value.segments[-1].bookies",
            "if answer in (CodeAnswer(Code.NO_ENTRY), CodeAnswer(Code.NO_LEDGER)): answer = None",
        ),
        "O8",
    ),
    _bug(
        "answers-to-reads-of-the-tail-count-for-the-length",
        "an answer belongs to the entry that was asked for",
        READER,
        "EntryRead.answered",
        Replace("self.result is not None or token.entry_id != self.entry_id", "self.result is not None"),
        "O8",
    ),
    # ── readers ──────────────────────────────────────────────────────────────────────────────────────
    _bug(
        "a-reader-is-shown-the-entry-after-the-last-add-confirmed",
        "a reader is shown acknowledged entries only",
        TAILER,
        "LedgerTailer._end_of_ledger",
        Replace(
            "metadata.last_entry if metadata.is_closed else self.last_add_confirmed",
            "metadata.last_entry if metadata.is_closed else self.last_add_confirmed + 1",
        ),
        "O2",
        "O8",
    ),
    _bug(
        "a-reader-is-shown-entries-after-the-end",
        "a reader of a closed ledger is shown its entries and no others",
        TAILER,
        "LedgerTailer._end_of_ledger",
        Replace(
            "metadata.last_entry if metadata.is_closed else self.last_add_confirmed",
            "metadata.last_entry + 1 if metadata.is_closed else self.last_add_confirmed",
        ),
        "O1",
    ),
    _bug(
        "a-reader-ends-before-the-last-entry",
        "a reader of a closed ledger is shown all entries",
        TAILER,
        "LedgerTailer._go_on",
        Replace(
            "self._metadata.value.is_closed and self._next > end",
            "self._metadata.value.is_closed and self._next >= end",
        ),
        "O8",
    ),
    PlantedClusterBug(
        "a-reader-does-not-notice-the-close",
        "a reader follows the metadata, by its watch and after each pause",
        (
            EditAddress(
                TAILER,
                "LedgerTailer.metadata_changed",
                Rewrite("self._metadata = metadata", "self._is_polling = False"),
            ),
            EditAddress(
                TAILER,
                "LedgerTailer.metadata_read",
                Rewrite("self._metadata = answer", "self._is_polling = False"),
            ),
        ),
        frozenset({"O8"}),
    ),
    # ── bookies ──────────────────────────────────────────────────────────────────────────────────────
    _bug(
        "answered-before-the-sync",
        "a bookie answers an add when the entry is durable",
        BOOKIES,
        "ModelBookie._add",
        Rewrite(
            "self._sync_with_others(request, reply)",
            "self._sync_with_others(request, lambda answer: None)\nreply(_OK)",
        ),
        "T2",
        "T3",
    ),
    _bug(
        "a-fence-is-not-durable",
        "a fence that was answered holds through a crash",
        BOOKIES,
        "ModelBookie._make_durable",
        Drop("ledger.is_fenced_durably = True"),
        "O9",
    ),
    _bug(
        "a-fence-is-answered-before-the-adds-that-came-first",
        "adds that have arrived before a fence are readable when it is answered",
        BOOKIES,
        "ModelBookie._sync_with_others",
        Rewrite(
            "self._unsynced.append((request, reply))",
            "if isinstance(request, ReadEntry):\n"
            "    self._make_durable(request)\n"
            "    self._oracles.fence_answered(self.name, request.ledger_id)\n"
            "    reply(self._read(request))\n"
            "    return\n"
            "self._unsynced.append((request, reply))",
        ),
        "O9",
    ),
    _bug(
        "a-fence-holds-from-its-sync-on",
        "no add is taken after the arrival of a fence",
        BOOKIES,
        "ModelBookie._add",
        Replace(
            "self._ledger(request.ledger_id).is_fenced", "self._ledger(request.ledger_id).is_fenced_durably"
        ),
        "O9",
    ),
    _bug(
        "a-recovery-add-is-refused",
        "a fenced ledger takes the adds of a recovery",
        BOOKIES,
        "ModelBookie._add",
        Replace("not request.options.is_recovery", "True"),
        "O8",
    ),
    _bug(
        "a-first-add-is-checked-without-a-sync",
        "a follower of the metadata that lags does not make a bookie refuse a live writer",
        FIRST_ADD,
        "check_first_add",
        Drop("await znodes.sync(...)"),
        "O11",
    ),
    _bug(
        "a-crash-loses-durable-entries",
        "a bookie forgets nothing that it has acknowledged",
        BOOKIES,
        "ModelBookie.crash",
        InsertAfter("ledger.is_fenced = ledger.is_fenced_durably", "ledger.entries.clear()"),
        "T2",
        "T3",
        "O6",
        "O8",
    ),
    # ── deferred syncs, and what is told explicitly ──────────────────────────────────────────────────
    _deferred(
        "a-restarted-bookie-forces-what-it-has-lost",
        "a force counts only on the connection of its adds",
        DEFERRED,
        "DeferredLedgerWriter.connection_lost",
        Replace("self._is_all_forced", "True"),
        "T2",
        "O6",
    ),
    _deferred(
        "copies-at-a-restarted-bookie-count",
        "copies under way at a bookie that may have been restarted do not count",
        DEFERRED,
        "DeferredLedgerWriter.connection_lost",
        Drop("self._copies.fail(bookie)"),
        "T2",
        "O6",
    ),
    _deferred(
        "a-force-without-one-bookie-confirms",
        "a force needs every bookie of the ensemble",
        DEFERRED,
        "DeferredLedgerWriter.answered",
        Replace(
            "[] if force.unanswered else self._end_force(force)",
            "[] if len(force.unanswered) != 1 else self._end_force(force)",
        ),
        "T2",
        "O6",
    ),
    _deferred(
        "a-failed-force-confirms",
        "a force that fails at one bookie confirms nothing",
        DEFERRED,
        "DeferredLedgerWriter.answered",
        Replace("answer != CodeAnswer(Code.OK)", "False"),
        "T2",
        "O6",
    ),
    _deferred(
        "a-force-confirms-what-came-after-it-began",
        "a force confirms what was acknowledged when it began",
        DEFERRED,
        "DeferredLedgerWriter._end_force",
        InsertBefore(
            "self.last_confirmed, self.length_confirmed = ...", "force.last_entry = self.last_acknowledged"
        ),
        "T2",
        "O3",
    ),
    _deferred(
        "an-acknowledgement-confirms-although-syncs-are-deferred",
        "the last add confirmed moves only by a force",
        DEFERRED,
        "DeferredLedgerWriter._note_acknowledged",
        InsertAfter("self._length_acknowledged = length", "self.last_confirmed = self.last_acknowledged"),
        "O2",
        "T2",
        "O4",
        "O3",
    ),
    _deferred(
        "the-ensemble-changes-although-entries-are-not-forced",
        "the ensemble does not change while an acknowledged entry is not forced",
        DEFERRED,
        "DeferredLedgerWriter._begin_change",
        Replace("self._is_all_forced", "True"),
        "T2",
    ),
    _deferred(
        "bookies-are-told-what-is-not-confirmed",
        "an explicit packet has the last add confirmed",
        WRITER,
        "LedgerWriter.tell_confirmed",
        Rewrite("self._told = self.last_confirmed", "self._told = self.last_pushed"),
        "O2",
        "O8",
    ),
    # ── real stores as bookies ───────────────────────────────────────────────────────────────────────
    PlantedClusterBug(
        "a-store-answers-before-its-journal-is-synced",
        "a store answers an add when no power cut can take it away",
        (EditAddress("storage.journal.writer", "JournalWriter.sync", Drop("self._file.sync()")),),
        frozenset({"T2", "T3", "O6", "O8", "O9"}),
        range(300),
        kind=RealStoreSchedule,
    ),
    PlantedClusterBug(
        "a-store-does-not-fence",
        "a fence that a store has answered holds through a crash",
        (
            EditAddress(
                "storage.bookie",
                "Bookie.fence",
                InsertBefore("self._engine.control.fence(...)", "return None"),
            ),
        ),
        frozenset({"O9"}),
        range(600, 1_500),
        kind=RealStoreSchedule,
    ),
)
