"""Planted bugs: each breaks one rule of the protocol, by one small change of our own code.

The list follows the orders in docs/durability.md and the classic mistakes of stores like this one; it is not
a list of mistakes that are easy to find. A bug is addressed by module, function and edit: see `code_edits`.

Two orders are not in the list, because breaking them alone loses nothing: the mark before the index, and a
mark taken from an index that is ahead and was not made durable. Both leave a mark whose generation is later
than the index's. Then the index is rebuilt from the entry logs, which were durable before, and journals are
removed only when mark and index are durable. The list contains the bugs that would break this: the trim
before the index, and an index that is accepted although it is older than the mark."""

from __future__ import annotations

from dataclasses import dataclass

from code_edits import Drop, Edit, EditAddress, InsertAfter, InsertBefore, Replace, Rewrite, Swap
from planted_collection_bugs import COLLECTION
from planted_lineage_bugs import LINEAGE
from planted_space_bugs import SPACE


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug, the rule that it breaks, and the tests that are expected to find it."""

    name: str
    rule: str
    changes: tuple[EditAddress, ...]
    tests: tuple[str, ...] = ()
    """Tests to run before the crash simulation, for bugs that a crash alone does not show."""


def _one(name: str, rule: str, module: str, function: str, edit: Edit, *tests: str) -> PlantedBug:
    return PlantedBug(name, rule, (EditAddress(module, function, edit),), tests)


REPLACE = "storage.disk.replace"
JOURNAL = "storage.journal.writer"
JOURNALS = "storage.journal.journal_set"
COMMIT = "storage.commit.committer"
CHECKPOINT = "storage.checkpoint.checkpointer"
LOG = "storage.entrylog.writer"
MARK = "storage.checkpoint.mark"
SCAN = "storage.journal.scan"
FOUNDING = "recovery.directory.layout"
REPLAY = "recovery.replay.journals"
REPLAYING = "recovery.replay.apply"
RECONCILE = "recovery.opening.reconcile"
LEDGER_METADATA = "storage.ledgers.metadata"
ROWS = "storage.ledgers.metadata_log"
TRUNCATION_TESTS = "tests/storage/test_truncation.py"

PLANTED = (
    # ── the journal ──────────────────────────────────────────────────────────────────────────────────
    _one(
        "journal-not-synced",
        "a group is durable before its adds are answered",
        JOURNAL,
        "JournalWriter.sync",
        Drop("self._file.sync()"),
    ),
    _one(
        "journal-name-not-synced",
        "a journal's name is durable before the first add in it is answered",
        REPLACE,
        "publish_draft",
        Rewrite("directory.sync()", "if not name.endswith('.txn'):\n    directory.sync()"),
    ),
    _one(
        "journal-named-before-it-is-synced",
        "a journal's name appears only by renaming a synced draft",
        JOURNAL,
        "JournalDraft.fill",
        Drop("self._file.sync()"),
    ),
    _one(
        "header-not-written-at-the-second-fill",
        "a journal's header states how far the journal was filled, even if it was filled in several steps",
        JOURNAL,
        "JournalDraft.fill",
        Rewrite(
            "self._file.write(...)",
            "if not self.room:\n"
            "    padding = journal_seal.header_padding(self._alignment)\n"
            "    self._file.write(0, [journal_format.encode_header(header), padding])",
        ),
        "tests/storage/journal/test_drafts.py",
    ),
    PlantedBug(
        "visible-before-sync",
        "no entry is visible before its sync",
        (
            EditAddress(COMMIT, "Committer.proceed", Rewrite("if group.step == SYNC: ...", "pass")),
            EditAddress(
                COMMIT,
                "Committer.proceed",
                InsertBefore(
                    "group.at, group.step = ...",
                    "journals.durable_up_to = journal.sync()\njournals.groups += 1",
                ),
            ),
        ),
    ),
    _one(
        "alone-visible-before-sync",
        "no entry is visible before its sync, also if it is alone in its group",
        COMMIT,
        "Committer.proceed",
        InsertBefore(
            "journals.durable_up_to = journal.sync()",
            "for run in entries if len(entries) == 1 else ():\n"
            "    self._slot.tables.active.insert_parts(\n"
            "        run.state.ledger_id, run.first_id, run.headers, run.payloads, run.size\n"
            "    )\n"
            "    run.state.end = LedgerEnd(run.last_id, run.length)\n"
            "    group.is_repeated = True",
        ),
        "tests/storage/test_disk_errors.py",
    ),
    _one(
        "alone-covers-more-than-it-holds",
        "a mark covers no group that is not in the table",
        COMMIT,
        "Committer.proceed",
        Rewrite(
            "active.covers_until = journals.durable_up_to",
            "active.covers_until = journals.durable_up_to._replace(offset=journal.end + 4096)",
        ),
        "tests/recovery/opening/test_open_store.py",
    ),
    _one(
        "alone-past-those-who-wait",
        "waiting adds have lower ids than later ones, and are written first",
        "storage.commit.pending",
        "PendingEntries.join",
        Rewrite("group.entries += [self]", "group.entries = [self, *group.entries]"),
        "tests/storage/commit/test_joining.py",
    ),
    _one(
        "alone-no-latch-after-an-error",
        "after a disk error no add is answered, also if the add was alone in its group",
        COMMIT,
        "Committer._fail",
        Rewrite(
            "self._store_state.fail(error)",
            "if len(group.entries) == 1:\n"
            "    self._states.hand_back()\n"
            "    self._journals.active.forget_unsynced()\n"
            "else:\n"
            "    self._store_state.fail(error)",
        ),
        "tests/storage/commit/test_committer.py",
    ),
    _one(
        "seal-vouches-for-itself",
        "a seal proves what was durable before its group, not the group itself",
        JOURNAL,
        "JournalWriter.write",
        InsertBefore("fields = ...", "durable_up_to = JournalPosition(self.journal_id, self.end + 4096)"),
    ),
    _one(
        "sync-retried-after-an-error",
        "after a failed sync writing stops, because a second sync proves nothing",
        JOURNAL,
        "JournalWriter.sync",
        Rewrite(
            "self._file.sync()",
            "try:\n    self._file.sync()\nexcept OSError:\n    self._file.sync()",
        ),
    ),
    _one(
        "no-latch-after-an-error",
        "after an error nothing more is written to the file",
        COMMIT,
        "Committer._fail",
        Rewrite(
            "self._store_state.fail(error)",
            "self._states.hand_back()\nself._journals.active.forget_unsynced()",
        ),
    ),
    PlantedBug(
        "append-many-not-atomic",
        "a group that began as atomic is kept whole or not at all",
        (
            EditAddress(
                "storage.commit.portions",
                "journal_group_of",
                Replace("GroupFlag.ATOMIC if count > len(members) else GroupFlag.NONE", "GroupFlag.NONE"),
            ),
            EditAddress(
                "storage.commit.portions",
                "journal_group_of",
                Rewrite(
                    "return JournalGroup(buffers, len(work.payloads), work.size, GroupFlag.ATOMIC)",
                    "return JournalGroup(buffers, len(work.payloads), work.size, GroupFlag.NONE)",
                ),
            ),
        ),
    ),
    _one(
        "handler-hides-a-failed-sync",
        "a failed sync is never repeated, also if a signal handler raises while the error is handled",
        "storage.commit.interruption",
        "is_interruption",
        Drop("if is_failure and any(...): ..."),
        "tests/storage/commit/test_interruption.py",
    ),
    _one(
        "interrupted-write-without-its-key",
        "a group that is written again after an interruption brings the keys of its ledgers again",
        COMMIT,
        "Committer._write",
        InsertBefore("journal.write(...)", "journal.keyed.update(missing)"),
        "tests/storage/commit/test_signals.py",
    ),
    _one(
        "no-checksum",
        "a group counts only if its checksum matches",
        "storage.journal.reader",
        "JournalReader._group_flaw",
        Replace("stored.flaw if checksum == stored.checksum else Flaw.CHECKSUM", "stored.flaw"),
    ),
    _one(
        "announced-before-its-name",
        "the mark names a journal only when the journal's name is durable",
        MARK,
        "LastMark.announcing",
        Swap("yield", "self._publish(mark)"),
    ),
    _one(
        "not-announced",
        "a new journal is announced in the mark before any add in it is acknowledged",
        MARK,
        "LastMark.announcing",
        Drop("self._publish(mark)"),
        "tests/storage/journal/test_newest_journal.py",
    ),
    _one(
        "journal-in-use-not-required",
        "while the next journal is announced, its header names the one that groups are written to",
        "recovery.replay.chain",
        "judge",
        Drop("required += _required_by_header(...)"),
        "tests/storage/journal/test_prepared_journal.py",
    ),
    _one(
        "prepared-journal-follows-none",
        "a journal's header names the newest one with a durable group",
        JOURNALS,
        "Journals.new_draft",
        Replace("self.durable_up_to.journal_id", "0"),
        "tests/storage/journal/test_prepared_journal.py",
    ),
    _one(
        "prepared-journal-removed-before-it-is-withdrawn",
        "a journal is removed only when no mark announces it",
        JOURNALS,
        "Journals.discard_next",
        Drop("with self._announcing(self.active.journal_id): ..."),
        "tests/storage/journal/test_prepared_journal.py",
    ),
    _one(
        "announcement-forgotten",
        "a checkpoint keeps the announced journal in the mark",
        MARK,
        "LastMark.advance",
        Replace("max(newest_named(self._stored), state.mark.journal_id)", "state.mark.journal_id"),
        "tests/storage/journal/test_newest_journal.py",
    ),
    _one(
        "announcement-takes-the-mark-back",
        "an announcement keeps the position to which a checkpoint has moved the mark",
        MARK,
        "LastMark._publish",
        Drop("self._stored = mark"),
    ),
    _one(
        "cut-journal-not-missed",
        "a journal that is shorter than its filled size has lost its end",
        SCAN,
        "_against_header",
        Replace("reader.has_lost_its_end", "False"),
        "tests/storage/journal/test_newest_journal.py",
    ),
    _one(
        "another-s-header-believed",
        "a header whose salt fits no group may belong to another journal",
        SCAN,
        "_against_header",
        Replace("stranger is not None", "False"),
        "tests/storage/journal/test_newest_journal.py",
    ),
    _one(
        "stranger-where-the-header-is-confirmed",
        "a header that one seal confirms is not rejected because of another seal",
        SCAN,
        "_against_header",
        Replace("found.durable_up_to is None", "True"),
        "tests/recovery/replay/test_chain.py",
    ),
    # ── the checkpoint ───────────────────────────────────────────────────────────────────────────────
    _one(
        "entry-log-not-synced",
        "entry logs are durable before the index places entries in them",
        LOG,
        "EntryLogWriter.sync",
        Drop("with self._writing() as file: ..."),
    ),
    _one(
        "entry-log-name-not-synced",
        "an entry log's name is durable before the index places entries in it",
        CHECKPOINT,
        "Checkpointer._checkpoint",
        Drop("self._logs.sync_names()"),
    ),
    _one(
        "entry-log-header-not-synced",
        "a named log of ours has a header with its store's id, otherwise leftovers could not be removed",
        REPLACE,
        "replacing",
        Rewrite("file.sync()", "if not name.endswith('.log'):\n    file.sync()"),
        "tests/storage/entrylog/test_writer.py",
    ),
    _one(
        "mark-before-the-logs",
        "the mark comes last: entry logs, index, mark",
        CHECKPOINT,
        "Checkpointer._checkpoint",
        InsertBefore(
            "locations = yield from self._write_logs(frozen)",
            "import dataclasses\n"
            "self.state = dataclasses.replace(self.state, mark=frozen.covers_until)\n"
            "yield from self._advance_mark()",
        ),
    ),
    _one(
        "mark-not-synced-before-the-rename",
        "a durable name never precedes durable content",
        REPLACE,
        "write_draft",
        Rewrite("file.sync()", "if name != filenames.LAST_MARK:\n    file.sync()"),
    ),
    _one(
        "mark-s-name-not-synced",
        "journals are trimmed only when the mark is durable",
        REPLACE,
        "publish_draft",
        Rewrite("directory.sync()", "if name != filenames.LAST_MARK:\n    directory.sync()"),
    ),
    PlantedBug(
        "mark-in-place",
        "the mark is replaced by a rename, never rewritten",
        (
            EditAddress(
                REPLACE,
                "create_draft",
                Rewrite(
                    "draft = ...",
                    "draft = name if name == filenames.LAST_MARK else filenames.draft(name)",
                ),
            ),
            EditAddress(
                REPLACE,
                "publish_draft",
                Rewrite(
                    "directory.rename(...)",
                    "if name != filenames.LAST_MARK:\n    directory.rename(filenames.draft(name), name)",
                ),
            ),
        ),
    ),
    _one(
        "trim-before-index-and-mark",
        "journals are trimmed when index and mark are durable",
        CHECKPOINT,
        "Checkpointer._checkpoint",
        InsertBefore(
            "yield from self._commit_index(...)",
            "journals.trim(self._journal_directory, frozen.covers_until.journal_id, 0)",
        ),
    ),
    _one(
        "trim-takes-the-marked-journal",
        "the journal that the mark names stays",
        JOURNALS,
        "trim",
        Replace("journal_id < marked_id", "journal_id <= marked_id"),
    ),
    _one(
        "mark-at-the-last-synced-position",
        "a mark covers what the frozen table covers, not what was synced last",
        CHECKPOINT,
        "Checkpointer._next_state",
        Replace("frozen.covers_until", "self._committer._journals.durable_up_to"),
    ),
    _one(
        "thaw-before-the-index",
        "the frozen table is released for readers only when the index has its entries",
        CHECKPOINT,
        "Checkpointer._checkpoint",
        InsertAfter("self._logs.sync_names()", "self._committer.thaw()"),
    ),
    _one(
        "log-retried-after-an-error",
        "a log with a failed write or sync is abandoned, because a second sync proves nothing",
        LOG,
        "EntryLogWriter.sync",
        Rewrite("file.sync()", "try:\n    file.sync()\nexcept OSError:\n    file.sync()"),
        "tests/storage/test_operation_order.py",
    ),
    _one(
        "rows-dropped-when-the-commit-is-tried-again",
        "metadata changes are kept when a commit of the index is tried again",
        CHECKPOINT,
        "Checkpointer._commit_index",
        InsertBefore("yield pause", "rows = ()"),
        "tests/storage/test_disk_errors.py",
    ),
    _one(
        "log-id-given-out-again",
        "a new log never gets the id of an earlier log, even if that one was removed",
        "storage.entrylog.log_set",
        "EntryLogs._with_room",
        Replace(
            "next_log_id(taken_by(self._directory.names()), self.last_log)",
            "next_log_id(taken_by(self._directory.names()), None)",
        ),
        "tests/storage/entrylog/test_log_set.py",
    ),
    _one(
        "failed-table-is-dropped",
        "a table whose checkpoint fails stays first in line",
        CHECKPOINT,
        "Checkpointer._write_logs",
        InsertAfter("self._logs.abandon()", "return []"),
        "tests/storage/test_bookkeeper_data_loss.py",
        "tests/storage/test_disk_errors.py",
    ),
    _one(
        "checkpoint-rewrites-a-committed-block",
        "a torn write never touches committed entries",
        LOG,
        "EntryLogWriter.sync",
        Drop("self._fill_block()"),
        "tests/storage/entrylog/test_writer.py",
    ),
    _one(
        "cache-keeps-old-places",
        "a copy that a newer one has replaced is never read again",
        CHECKPOINT,
        "Checkpointer._checkpoint",
        Drop("self._metadata.forget_locations(...)"),
        "tests/test_store.py",
        "tests/storage/test_bookkeeper_data_loss.py",
    ),
    # ── opening ──────────────────────────────────────────────────────────────────────────────────────
    _one(
        "what-was-read-counts-as-durable",
        "bytes that are read after a crash are not proven durable",
        REPLAY,
        "Replay._replayed",
        Replace("position <= self.durable_up_to", "True"),
    ),
    PlantedBug(
        "what-waits-counts-as-durable",
        "also of entries that wait in the journals, only those before a valid seal are durable",
        (
            EditAddress(
                "recovery.replay.durable_extents",
                "_end_of_proven",
                Replace("min(one.end, durable_up_to.offset)", "one.end"),
            ),
            EditAddress(
                REPLAYING,
                "JournalApplier._leave_in_journals",
                Replace(
                    "self._replay.durable_up_to",
                    "journals[-1].end if journals else self._replay.durable_up_to",
                ),
            ),
        ),
    ),
    _one(
        "what-waits-is-written-down-unseen",
        "entries that wait in the journals are verified again when a checkpoint writes them",
        "recovery.replay.journal_backed_table",
        "_verified_bytes",
        Replace("extents.is_same(one, data)", "data"),
        "tests/recovery/replay/test_journal_backed_table.py",
    ),
    _one(
        "what-waits-brings-a-ledger-back",
        "records of a deleted ledger are skipped, also when they wait in the journals",
        "recovery.replay.durable_extents",
        "_proven",
        Replace("tombstone.journal_id < journal_id", "True"),
    ),
    _one(
        "what-waits-forgets-what-was-said",
        "metadata in the journals is written to the rows with the entries",
        REPLAYING,
        "JournalApplier._journal_backed_table",
        Replace("rows.values()", "()"),
    ),
    _one(
        "what-waits-hides-a-newer-copy",
        "if an entry id occurs twice, the records are read one by one",
        "storage.journal.extents",
        "JournalExtents._keep",
        Replace("first_id < end_ids.get(ledger_id, 0)", "False"),
        "tests/storage/journal/test_extents.py",
    ),
    _one(
        "carried-over-without-a-sync",
        "carried-over entries are durable before their journal has a name",
        JOURNALS,
        "Journals.carry_over",
        InsertBefore("end = writer.sync()", "writer._file.sync = lambda: None"),
    ),
    PlantedBug(
        "carried-over-and-not-vouched-for",
        "carried-over entries are proven durable for the next opening",
        (
            EditAddress(JOURNALS, "Journals.carry_over", Drop("writer.write(NOTHING, end)")),
            EditAddress(
                JOURNALS,
                "Journals.carry_over",
                Rewrite("self.durable_up_to = writer.sync()", "self.durable_up_to = end"),
            ),
        ),
        ("tests/recovery/opening/test_open_store.py",),
    ),
    _one(
        "journal-ids-from-the-mark-alone",
        "an opening gives no new journal the name of an existing one",
        "recovery.opening.assembly",
        "_journals",
        Replace("[*named, *journal_ids(layout.journal)]", "named"),
        "tests/recovery/opening/test_open_store.py",
    ),
    _one(
        "names-not-synced-at-opening",
        "an opening syncs the directory, because a power cut may remove names that it shows",
        FOUNDING,
        "is_created",
        Drop("directory.sync()"),
    ),
    _one(
        "index-behind-believed",
        "an index whose generation is below the mark's is an older copy",
        "recovery.directory.evidence",
        "compare",
        Replace("found.trailer.generation < state.generation", "True"),
        "tests/storage/test_damaged_store.py",
        "tests/storage/test_store_refusals.py",
        "tests/storage/test_disk_errors.py",
    ),
    _one(
        "rot-taken-for-a-torn-tail",
        "damage before a valid seal is rot, and is refused",
        "recovery.replay.chain",
        "_judge_journal",
        Replace("scan.end >= must_reach", "True"),
        "tests/storage/test_damaged_store.py",
        "tests/recovery/replay/test_chain.py",
    ),
    _one(
        "missing-journal-not-noticed",
        "a journal that the mark's trailer names must exist",
        REPLAY,
        "Replay.__init__",
        Rewrite("required = ...", "required = []"),
        "tests/storage/test_store_refusals.py",
        "tests/storage/test_damaged_store.py",
        "tests/storage/test_disk_errors.py",
    ),
    _one(
        "leftover-logs-kept",
        "crash loops use bounded space",
        "recovery.directory.orphans",
        "_is_log_of",
        Replace("origin.store_id == store_id", "origin.store_id != store_id"),
        "tests/recovery/test_crash_sim.py",
    ),
    PlantedBug(
        "store-s-name-not-synced",
        "the directories of a store are durable before anything is acknowledged in it",
        (
            EditAddress(FOUNDING, "_make_directories", Drop("outer.sync()")),
            EditAddress(FOUNDING, "_make_directories", Drop("layout.root.sync()")),
        ),
    ),
    _one(
        "cookie-not-synced",
        "a directory without its cookie is refused: the cookie is durable first",
        REPLACE,
        "write_draft",
        Rewrite("file.sync()", "if name != filenames.COOKIE:\n    file.sync()"),
    ),
    # ── the index ────────────────────────────────────────────────────────────────────────────────────
    _one(
        "index-not-synced",
        "a commit of the index is durable when it returns",
        "storage.index.lmdb.environment",
        "_open",
        InsertBefore("return lmdb.open(...)", 'options["sync"] = False'),
        "tests/storage/index/lmdb/test_index.py",
    ),
    PlantedBug(
        "index-made-in-place",
        "the index is made under another name, and appears complete",
        (
            EditAddress(
                "storage.index.lmdb.directory",
                "LmdbIndexDirectory.draft",
                InsertBefore(
                    "environment = ...", "inner = self._directory.directory(filenames.INDEX)\ninner.make()"
                ),
            ),
            EditAddress(
                "storage.index.lmdb.directory",
                "LmdbIndexDirectory.draft",
                Replace("self._path / _DRAFT", "self._path / filenames.INDEX"),
            ),
        ),
        ("tests/storage/index/lmdb/test_index.py", "tests/storage/index/test_port_contract.py"),
    ),
    _one(
        "index-name-not-synced",
        "the index's name is durable before it is used",
        REPLACE,
        "publish_draft",
        Rewrite("directory.sync()", "if name != filenames.INDEX:\n    directory.sync()"),
        "tests/storage/index/lmdb/test_index.py",
        "tests/storage/index/test_port_contract.py",
    ),
    _one(
        "page-sums-not-synced",
        "the checksums of a commit are durable before it is answered",
        "storage.index.lmdb.page_checksums",
        "PageChecksums.record_commit",
        Drop("self._file.sync()"),
        "tests/storage/index/lmdb/test_page_checksums.py",
    ),
    _one(
        "page-sums-not-looked-at",
        "no page of the index is followed whose checksum is wrong",
        "storage.index.lmdb.page_checksums",
        "verify",
        Replace(
            "known.damage(data) or PageChecksums(directory, data, known)",
            "PageChecksums(directory, data, known)",
        ),
        "tests/storage/index/lmdb/test_page_checksums.py",
        "tests/storage/index/lmdb/test_damaged_pages.py",
    ),
    _one(
        "crash-taken-for-rot",
        "a crash between LMDB's commit and the record of its checksums does not lose the index",
        "storage.index.lmdb.page_checksums",
        "verify",
        Replace("known.number + 1", "known.number"),
        "tests/storage/index/lmdb/test_page_checksums.py",
    ),
    _one(
        "overwrite-leaves-two-places",
        "an entry has one place",
        "storage.index.lmdb.environment",
        "_replace",
        Rewrite("_exchange_of(cursor)(...)", "transaction.put(key, value)"),
        "tests/storage/index/test_port_contract.py",
        "tests/test_store.py",
    ),
    # ── what is said of ledgers ──────────────────────────────────────────────────────────────────────
    _one(
        "statement-not-journaled",
        "a fence or a confirmation is durable in the journal before it is answered",
        "storage.commit.portions",
        "portions_of",
        Rewrite("with_records = ...", "with_records = before"),
    ),
    _one(
        "statement-not-written-again",
        "fences and confirmations that are not proven durable are written again, like entries",
        REPLAYING,
        "JournalApplier._carry_over",
        Drop("self.carried += [encoded for record in said if ...]"),
    ),
    _one(
        "fence-lets-adds-pass",
        "a fenced ledger refuses ordinary adds",
        "storage.ledgers.state",
        "LedgerState.facts_for_add",
        Drop("if facts.fenced and access.purpose is Purpose.WRITING: ..."),
        "tests/storage/commit/test_ledger_control.py",
    ),
    _one(
        "statement-without-a-key",
        "the key is logged before a fence too, because a bookie skips a fence without it",
        "storage.commit.portions",
        "Portion.keys",
        Replace("chain(self.entries, self.controls)", "self.entries"),
        "tests/storage/commit/test_ledger_control.py",
    ),
    _one(
        "digest-type-declared-too-late",
        "a digest type other than the default is durable before the first add under it is answered",
        COMMIT,
        "Committer._declare",
        Drop("if revisions: ..."),
    ),
    _one(
        "rows-not-written-at-the-checkpoint",
        "metadata changes are in the rows before the journals are removed",
        LEDGER_METADATA,
        "LedgerMetadata.persist_changed",
        Rewrite("if rows: ...", "self._known |= {row.ledger_id: row for row in rows}"),
    ),
    _one(
        "rows-not-synced",
        "a group of rows is durable before it is used",
        ROWS,
        "MetadataLog._append_group",
        Drop("file.sync()"),
    ),
    _one(
        "rows-draft-not-synced",
        "a file of rows has its name only when its content is durable",
        REPLACE,
        "replacing",
        Rewrite("file.sync()", "if name != filenames.LEDGER_ROWS:\n    file.sync()"),
    ),
    _one(
        "rows-name-not-synced",
        "the name of a new file of rows is durable before anything names a group in it",
        ROWS,
        "MetadataLog._sync_name",
        Drop("sync_name(...)"),
    ),
    _one(
        "rows-believed-though-only-read",
        "rows that are not proven durable are written again before they are used",
        RECONCILE,
        "_durable_metadata",
        Replace(
            "loaded.sequence > loaded.proven_sequence or loaded.torn is not None or newest != loaded.rows",
            "newest != loaded.rows",
        ),
        "tests/storage/ledgers/test_metadata_log.py",
    ),
    _one(
        "delete-not-written-down",
        "a tombstone is in the rows before the delete is answered",
        LEDGER_METADATA,
        "LedgerMetadata.persist_tombstones",
        Drop("self._append_tombstones(rows)"),
    ),
    _one(
        "delete-not-vouched-for",
        "a group of tombstones is followed by a group that proves it durable before the delete is answered",
        LEDGER_METADATA,
        "LedgerMetadata.persist_tombstones",
        Drop("self._prove_last_group()"),
        "tests/storage/commit/test_ledger_control.py",
    ),
    _one(
        "delete-leaves-the-table",
        "the entries of a deleted ledger in the tables are dropped",
        LEDGER_METADATA,
        "LedgerMetadata.hide_deleted",
        Drop("tables.drop(row.ledger_id)"),
    ),
    _one(
        "delete-shows-the-index",
        "a deleted ledger has no places for readers",
        LEDGER_METADATA,
        "LedgerMetadata.hide_deleted",
        Drop("self._index.hide(row.ledger_id, row.tombstone.journal)"),
        "tests/storage/commit/test_ledger_control.py",
    ),
    _one(
        "delete-leaves-the-cache",
        "cached places are dropped together with those in the index",
        LEDGER_METADATA,
        "LedgerMetadata.hide_deleted",
        Drop("self._cache.drop(set(map(_LEDGER_ID, rows)))"),
        "tests/storage/commit/test_ledger_control.py",
    ),
    _one(
        "delete-leaves-the-index",
        "the first checkpoint that freezes after a delete removes the ledger's old places from the index",
        CHECKPOINT,
        "Checkpointer._commit_once",
        Drop("change.remove(removed)"),
        "tests/storage/commit/test_ledger_control.py",
    ),
    _one(
        "delete-forgets-where",
        "a tombstone kills everything up to the last group that was written",
        COMMIT,
        "Committer._decide",
        Replace(
            "max(self._journals.durable_up_to, self._journals.read_up_to)",
            "type(self._journals.durable_up_to)(0, 0)",
        ),
    ),
    _one(
        "checkpoint-shows-a-ledger-deleted-meanwhile",
        "a checkpoint shows a ledger again only if no later delete has hidden it",
        "storage.index.visible",
        "VisibleIndex.unhide",
        Replace("self._hidden.get(ledger_id) == deleted_up_to", "ledger_id in self._hidden"),
        "tests/storage/commit/test_ledger_control.py",
    ),
    _one(
        "tombstone-never-rests",
        "after the first checkpoint a new ledger with that id is valid in spite of the tombstone",
        LEDGER_METADATA,
        "LedgerMetadata._with_log_position",
        Rewrite("return self._numbered(...)", "return row"),
        "tests/storage/commit/test_ledger_control.py",
    ),
    _one(
        "tombstone-rests-too-early",
        "the checkpoint in progress may still write deleted entries, so only the next one unhides the ledger",
        LEDGER_METADATA,
        "LedgerMetadata.persist_changed",
        Replace("_deleted_up_to(row) == _deleted_up_to(before)", "True"),
        "tests/storage/commit/test_ledger_control.py",
    ),
    _one(
        "replay-brings-a-ledger-back",
        "records of a deleted ledger are skipped in a replay",
        REPLAY,
        "Replay._replayed",
        Replace("self._without_deleted(...) if self._rows else batch", "batch"),
    ),
    _one(
        "replay-brings-the-last-group-back",
        "the tombstone's position is the end of a group that was written before the delete",
        REPLAY,
        "Replay._without_deleted",
        Replace("end <= tombstone", "end < tombstone"),
    ),
    _one(
        "index-not-told-of-a-delete",
        "a delete that is only in the rows removes the places too",
        RECONCILE,
        "_merge_metadata",
        Drop("change.remove(...)"),
        "tests/storage/commit/test_ledger_control.py",
    ),
    _one(
        "key-of-a-deleted-ledger-believed",
        "a ledger that is created again has its key in the journal again",
        COMMIT,
        "Committer._decide",
        Drop("self._journals.active.keyed.pop(...)"),
        "tests/storage/commit/test_ledger_control.py",
    ),
    _one(
        "damaged-key-believed",
        "a key in a torn group counts only if it is known",
        SCAN,
        "_kept_prefix",
        Replace("verifier.knows_key(ledger_id, key)", "True"),
        "tests/recovery/replay/test_chain.py",
    ),
    _one(
        "adoption-forgets-fences",
        "a fence in any remaining journal is kept",
        "recovery.bookkeeper.merge_metadata",
        "MetadataMerge._row",
        Replace("base.fenced or journaled.fenced", "base.fenced"),
        "tests/recovery/bookkeeper/test_real_directories.py",
        "tests/recovery/bookkeeper/test_import_directory.py",
    ),
    _one(
        "rebuild-brings-a-ledger-back",
        "a rebuilt index has no places for entries that a tombstone covers",
        "recovery.rebuild.index_builder",
        "IndexBuilder._add",
        Replace("self._is_deleted(log, entry)", "False"),
        "tests/recovery/rebuild/test_rebuild.py",
    ),
    # ── answers ──────────────────────────────────────────────────────────────────────────────────────
    _one(
        "unreadable-is-called-missing",
        "missing and unreadable entries are reported differently",
        "storage.read.points",
        "PointReader._whole",
        Rewrite('return _unreadable(place, "there is no record at its location")', "return MISSING"),
        "tests/storage/test_damaged_store.py",
        "tests/storage/test_disk_errors.py",
    ),
    _one(
        "ids-skipped-by-a-full-disk",
        "an add that is refused because the disk is full has no effect",
        COMMIT,
        "Committer._refuse_open",
        Drop("self._states.hand_back()"),
        "tests/storage/test_disk_errors.py",
    ),
    # ── space reclamation ────────────────────────────────────────────────────────────────────────────
    *(PlantedBug(*bug) for bug in COLLECTION),
    *(PlantedBug(*bug) for bug in LINEAGE),
    # ── full disks ───────────────────────────────────────────────────────────────────────────────────
    *(PlantedBug(*bug) for bug in SPACE),
    # ── truncation ───────────────────────────────────────────────────────────────────────────────────
    _one(
        "truncation-not-written-down",
        "the row of a truncation is durable before the answer",
        LEDGER_METADATA,
        "LedgerMetadata.persist_truncation",
        Drop("self._append_revised([replace(row, truncation=truncation)], Need.FINISHING)"),
        TRUNCATION_TESTS,
    ),
    _one(
        "truncation-not-vouched-for",
        "a group with a truncation is followed by a group that proves it durable before the answer",
        LEDGER_METADATA,
        "LedgerMetadata.persist_truncation",
        Drop("self._prove_last_group()"),
        TRUNCATION_TESTS,
    ),
    _one(
        "truncation-of-another-ledger",
        "a truncation that a delete has overtaken is not written for the next ledger of that id",
        LEDGER_METADATA,
        "LedgerMetadata.persist_truncation",
        Replace("_deleted_up_to(row) not in (None, deleted_at)", "False"),
        TRUNCATION_TESTS,
    ),
    _one(
        "truncation-goes-back",
        "a truncation that does not go beyond the last one changes nothing",
        LEDGER_METADATA,
        "LedgerMetadata.persist_truncation",
        Replace("row.first_entry_id >= truncation.first", "row.first_entry_id == truncation.first"),
        TRUNCATION_TESTS,
    ),
    _one(
        "truncation-shows-the-index",
        "truncated entries have no locations for readers",
        LEDGER_METADATA,
        "LedgerMetadata.hide_truncated",
        Drop("self._index.truncate(ledger_id, row.first_entry_id)"),
        TRUNCATION_TESTS,
    ),
    _one(
        "truncation-leaves-the-cache",
        "cached locations are truncated together with those in the index",
        LEDGER_METADATA,
        "LedgerMetadata.hide_truncated",
        Drop("self._cache.truncate(ledger_id, row.first_entry_id)"),
        TRUNCATION_TESTS,
    ),
    _one(
        "truncation-leaves-the-tables",
        "truncated entries in the tables are hidden",
        LEDGER_METADATA,
        "LedgerMetadata.hide_truncated",
        Drop("self._slot.tables.truncate(ledger_id, row.first_entry_id)"),
        TRUNCATION_TESTS,
    ),
    _one(
        "truncation-leaves-the-last-read-entry",
        "the entry that was read last is forgotten when it is truncated",
        "storage.memtable.ledger_entries",
        "LedgerEntries.truncate",
        Drop("self.read_last = None"),
        TRUNCATION_TESTS,
    ),
    _one(
        "truncation-ends-with-the-table",
        "a table that follows another one hides the same truncated entries",
        "storage.memtable.table",
        "Slot.freeze",
        Replace(
            "Memtable(tables.active.covers_until, tables.active.floors)",
            "Memtable(tables.active.covers_until)",
        ),
        TRUNCATION_TESTS,
    ),
    _one(
        "truncation-never-reaches-the-index",
        "the next checkpoint removes the locations of truncated entries",
        CHECKPOINT,
        "Checkpointer._commit_once",
        Drop("change.remove_before(row.ledger_id, row.first_entry_id)"),
        TRUNCATION_TESTS,
    ),
    _one(
        "truncation-removes-one-too-many",
        "the first entry that was not truncated keeps its location",
        CHECKPOINT,
        "Checkpointer._commit_once",
        Replace(
            "change.remove_before(row.ledger_id, row.first_entry_id)",
            "change.remove_before(row.ledger_id, row.first_entry_id + 1)",
        ),
        TRUNCATION_TESTS,
    ),
    _one(
        "checkpoint-places-truncated-entries",
        "a table that was frozen before a truncation gives truncated entries no locations",
        CHECKPOINT,
        "Checkpointer._commit_once",
        Drop("change.remove_before(one.ledger_id, first_id)"),
        TRUNCATION_TESTS,
    ),
    _one(
        "opening-keeps-truncated-locations",
        "an opening removes locations that were truncated after the last change of the index",
        RECONCILE,
        "_merge_metadata",
        Drop("change.remove_before(row.ledger_id, row.first_entry_id)"),
        TRUNCATION_TESTS,
    ),
    _one(
        "rebuild-ignores-truncations",
        "a rebuilt index has no locations of truncated entries",
        "recovery.rebuild.index_builder",
        "IndexBuilder._add",
        Replace("entry_id < self._first_ids.get(ledger_id, 0)", "False"),
        TRUNCATION_TESTS,
    ),
    _one(
        "replay-ignores-truncations",
        "truncated entries are skipped in a replay",
        REPLAY,
        "Replay._replayed",
        Rewrite("counts = ...", "counts = living"),
        TRUNCATION_TESTS,
    ),
    _one(
        "long-replay-ignores-truncations",
        "truncated entries that a long replay leaves in the journals are hidden",
        REPLAYING,
        "JournalApplier._freeze",
        Drop("self._engine.metadata.hide_all_truncated()"),
        TRUNCATION_TESTS,
    ),
    _one(
        "made-again-ledger-keeps-the-truncation",
        "the row of a tombstone has no truncation",
        LEDGER_METADATA,
        "LedgerMetadata.persist_tombstones",
        Replace(
            "LedgerRecord(ledger_id, self._next_change(), DigestType.CRC32C, master_key=PLAIN_KEY, "
            "tombstone=Tombstone(upto))",
            "LedgerRecord(ledger_id, self._next_change(), DigestType.CRC32C, master_key=PLAIN_KEY, "
            "tombstone=Tombstone(upto), truncation=self.of(ledger_id).truncation)",
        ),
        TRUNCATION_TESTS,
    ),
    _one(
        "truncated-ledger-counts-from-0",
        "the ids of a ledger go on although no entry is left",
        "storage.ledgers.state",
        "truncated_end",
        Rewrite("return LedgerEnd(...)", "return found"),
        TRUNCATION_TESTS,
    ),
    _one(
        "truncated-ledger-loses-its-length",
        "the length of a ledger goes on although no entry is left",
        "storage.engine",
        "Engine.truncate",
        Replace("end.length", "0"),
        TRUNCATION_TESTS,
    ),
)
