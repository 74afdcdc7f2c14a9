"""Machine-made mutants whose change no caller, file or crash can show, each with its reason.

`change` states what the mutant does. `tests/test_mutants.py` checks that it is the change of the mutant of
that name, because after an edit of the function the name may mean another mutant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A mutant that is no bug."""

    mutant: str
    change: str
    why: str


EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        "recovery.directory.layout:create_store:swap.3",
        "index.close() ↔ mark.write_draft(layout.ledgers, mark_of(IndexState(), 0))",
        "The index is durable before, and closing it writes nothing.",
    ),
    Equivalent(
        "recovery.bookkeeper.merge_metadata:MetadataMerge._has_bookie_records:number.1",
        "0 → 1",
        "The bit 1 says that a log of ours holds the ledger, and the mask leaves it out.",
    ),
    Equivalent(
        "recovery.rebuild.index_builder:IndexBuilder._add:swap.5",
        "self._places.setdefault(ledger_id, {})[entry_id] … on.location.pack() ↔ self._count += 1",
        "One thread, and neither statement uses what the other changes.",
    ),
    Equivalent(
        "recovery.replay.journals:Replay.batches:condition.2",
        "ranges → True",
        "A journal without a part that counts is opened, and nothing of it is read.",
    ),
    Equivalent(
        "recovery.replay.journals:_ranges:compare.2",
        "one.scan.start < one.end → one.scan.start <= one.end",
        "An empty part of a journal has no records: reading it yields nothing.",
    ),
    Equivalent(
        "recovery.replay.torn_tails:_has_records:condition.1",
        "start < end → True",
        "From the end on no item lies before the end: the answer is False all the same.",
    ),
    Equivalent(
        "storage.commit.committer:Committer.proceed:compare.10",
        "one.size <= SMALL → one.size < SMALL",
        "A record of exactly this size is written by the general way, byte for byte the same.",
    ),
    Equivalent(
        "storage.commit.committer:Committer.proceed:condition.25",
        "one is not None and journal is not None and (jou … .facts.master_key) → False",
        "The general way writes the entries of one caller too: the same bytes at the same place.",
    ),
    Equivalent(
        "storage.checkpoint.checkpointer:_weight:number.1",
        "_WEIGHT_OF_A_RUN + len(ids) → _WEIGHT_OF_A_RUN - len(ids)",
        "How much one step of a checkpoint takes on: it pauses elsewhere, and writes the same.",
    ),
    Equivalent(
        "storage.commit.committer:Committer.carry_over:swap.1",
        "journal.keyed.update(keys) ↔ self._slot.tables.active.covers_until = self._journals.durable_up_to",
        "An opening has one thread, and neither statement uses what the other changes.",
    ),
    Equivalent(
        "storage.memtable.ledger_entries:LedgerEntries.get:condition.2",
        "self.strays and (record := self.strays.get(entry_id)) is not None → "
        "(record := self.strays.get(entry_id)) is not None",
        "A short cut: an empty mapping holds no record either.",
    ),
    Equivalent(
        "storage.commit.portions:journal_group_of:condition.6",
        "work.first_id == work.last_id → False",
        "A short cut for one entry: buffers and counts of the general case are the same.",
    ),
    Equivalent(
        "storage.commit.portions:key_records_size:condition.1",
        "keys → True",
        "The sum over no keys is zero, which is what the short cut says.",
    ),
    Equivalent(
        "storage.journal.writer:_pieces:number.1",
        "2 → 3",
        "From which size on a group is written in pieces: its bytes are the same.",
    ),
    Equivalent(
        "storage.checkpoint.mark:load:number.3",
        "1 → 2",
        "One byte more than the longest mark tells that a file is too long; two bytes tell the same.",
    ),
    Equivalent(
        "storage.ledgers.metadata_log:_in_groups:condition.2",
        "metadata_log_format.body_size(encoded) <= metada … rmat.BODY_SIZE_MAX → False",
        "A short cut: the loop after it makes the same single group.",
    ),
    Equivalent(
        "storage.memtable.table:Memtable.parts:swap.2",
        "fronts.append(record[:front_size]) ↔ payloads.append(record[front_size:])",
        "Two lists that know nothing of each other: both get their part before either is used.",
    ),
    Equivalent(
        "storage.index.lmdb.page_checksums:PageChecksums.rewrite:swap.1",
        "self._abandon_file() ↔ record = self._snapshot.record()",
        "The record is made of what is in memory; the file that is given up is not asked.",
    ),
    Equivalent(
        "storage.disk.posix:PosixReadFile.read:condition.3",
        "len(first) == size or not first → len(first) == size",
        "At the end of a file the second read finds nothing either: both answers are empty.",
    ),
    Equivalent(
        "storage.ledgers.metadata:LedgerMetadata._next_change:number.1",
        "1 → 2",
        "Changes of rows are compared, never counted: only their order matters.",
    ),
    Equivalent(
        "storage.ledgers.state:LedgerState.__init__:number.1",
        "0 → 1",
        "`_begin`, which the constructor calls at its end, sets the length anew.",
    ),
    Equivalent(
        "storage.entrylog.writer:_joined:compare.1",
        "size > _SMALL * len(buffers) → size >= _SMALL * len(buffers)",
        "How many buffers are joined for one write: the same bytes are written at the same places.",
    ),
    Equivalent(
        "storage.entrylog.writer:_joined:number.1",
        "1 → 2",
        "How many buffers are joined for one write: the same bytes are written at the same places.",
    ),
    Equivalent(
        "storage.entrylog.writer:_joined:number.2",
        "1 → 2",
        "How many buffers are joined for one write: the same bytes are written at the same places.",
    ),
    Equivalent(
        "storage.journal.writer:_pieces:compare.1",
        "group.size < 2 * _PIECE → group.size <= 2 * _PIECE",
        "A group of exactly this size is written as a whole: its bytes are the same.",
    ),
    Equivalent(
        "storage.journal.writer:JournalWriter.__init__:number.5",
        "3 → 4",
        "A lower limit for the short cut; the exact calculation after it finds the same room.",
    ),
    Equivalent(
        "storage.journal.journal_set:Journals.discard_next:swap.1",
        "self._give_up_draft() ↔ prepared, self._prepared = (self._prepared, None)",
        "Under one lock, and neither statement uses what the other changes.",
    ),
    Equivalent(
        "storage.checkpoint.checkpointer:Checkpointer._end:swap.2",
        "self.count, self.last_seconds = (self.count + 1, … c() - self._began) ↔ self._attempts = 0",
        "One thread, and neither statement uses what the other changes.",
    ),
    Equivalent(
        "storage.index.lmdb.page_checksums:audit_allocation:compare.1",
        "lost >= 0 → lost > 0",
        "The search begins after the two meta pages, so that page 0 is never its result.",
    ),
    Equivalent(
        "storage.index.lmdb.page_checksums:audit_allocation:compare.3",
        "lost < 0 → lost <= 0",
        "The search begins after the two meta pages, so that page 0 is never its result.",
    ),
    Equivalent(
        "recovery.handover.metadata_journal:metadata_records:swap.1",
        "row = engine.metadata.of(ledger_id) ↔ facts.ledgers += 1",
        "The counts are read only after the records of all ledgers were made.",
    ),
    Equivalent(
        "recovery.handover.metadata_journal:metadata_records:swap.3",
        "facts.keys += 1 ↔ records.append(journal_format.encode_ledger_key( … , row.master_key))",
        "The counts are read only after the records of all ledgers were made.",
    ),
    Equivalent(
        "recovery.handover.metadata_journal:metadata_records:swap.5",
        "facts.fences += 1 ↔ records.append(journal_format.encode_fence(ledger_id))",
        "The counts are read only after the records of all ledgers were made.",
    ),
    Equivalent(
        "recovery.handover.metadata_journal:metadata_records:swap.6",
        "facts.explicit_lacs += 1 ↔ records.append(journal_format.encode_explicit_la … row.explicit_lac))",
        "The counts are read only after the records of all ledgers were made.",
    ),
    Equivalent(
        "storage.checkpoint.checkpointer:_chunks_by_step:condition.5",
        "size > record_chunk.SIZE_MAX or weight > _WEIGHT_MAX → size > record_chunk.SIZE_MAX",
        "How much one step of a checkpoint takes on: it pauses elsewhere, and writes the same.",
    ),
    Equivalent(
        "storage.checkpoint.checkpointer:Checkpointer._checkpoint:swap.9",
        "del frozen ↔ yield from _free_slowly(lists)",
        "The memory of a table is freed at another moment, which no answer shows.",
    ),
    Equivalent(
        "storage.ledgers.metadata:LedgerMetadata.hide_deleted:swap.2",
        "with self._forgetting: self._cache.drop(set(map(_LEDGER_ID, rows))) ↔ tables = self._slot.tables",
        "The tables are only looked up here, and no other thread replaces them.",
    ),
    Equivalent(
        "storage.ledgers.metadata:LedgerMetadata.hide_deleted:swap.3",
        "tables.drop(row.ledger_id) ↔ known = self._known.get(row.ledger_id)",
        "Under the lock, and the record is only looked up here: dropping entries does not change it.",
    ),
    Equivalent(
        "recovery.replay.chain:_required_by_header:number.1",
        "0 → 1",
        "The default of no seal: journal 1 has no journal before it that its header could name.",
    ),
    Equivalent(
        "storage.ledgers.metadata_log:MetadataLogScan.declared_end:number.1",
        "0 → 1",
        "It counts only for a file without a sound group, which is refused before for that reason.",
    ),
    Equivalent(
        "storage.ledgers.metadata_log:MetadataLogScan.proven_sequence:number.1",
        "0 → 1",
        "No group ends at offset 1, so both defaults prove none.",
    ),
    Equivalent(
        "storage.ledgers.metadata_log:MetadataLog.append:swap.3",
        "self._append_group(self._file, encoded) ↔ self._live_size = live_size",
        "After a failed append the file is given up, and a new one sets the size anew.",
    ),
    Equivalent(
        "storage.memtable.ledger_entries:LedgerEntries.put:compare.2",
        "len(record) < self.front_size → len(record) <= self.front_size",
        "The record becomes a stray and joins the run in the same call: the same run and size.",
    ),
    Equivalent(
        "storage.entrylog.log_set:EntryLogs.begin:swap.1",
        "self._newest = newest ↔ if self._writer is not None: self._writer.begin()",
        "Neither statement uses what the other changes, and an attempt after an error sets both again.",
    ),
    Equivalent(
        "storage.entrylog.writer:EntryLogWriter.write:swap.2",
        "locations.pop() ↔ found.append(locations)",
        "The same list of locations is changed before anything reads it.",
    ),
    Equivalent(
        "storage.index.lmdb.index:_record_size:number.10",
        "0 → 1",
        "The estimate of a record's size is larger by one page, and it is an upper limit.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._prepare:swap.2",
        "for erasure in group.erasures: self._erase(erasure) ↔ if group.erasures: "
        "self._journals.state_metadata … metadata.sequence)",
        "Both come before the first write of the group, and hiding a ledger does not change the sequence.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._wake_waiters:swap.1",
        "if self._store_state.failure is not None: self.w … .wake_all() return ↔ self.waiters.wake(ROOM)",
        "After a failure all waiters are woken anyway, those for room among them.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.flush:condition.1",
        "self.queue.is_led or self.queue.open.deletes → True",
        "A short cut that starts no thread: a group without deletes has nothing to do.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:swap.2",
        "self._store_state.check_not_failed() ↔ if not deletes: delete_group.step = ERASED return",
        "Without deletes there is no caller that could be told of the failure.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.end:swap.3",
        "if self._store_state.failure is not None: waiters.wake_all() ↔ for one in delete_group.deletes: "
        "waiters.wake(one.state.ledger_id)",
        "All waiters are woken in either order; a wake-up that comes twice counts once.",
    ),
    Equivalent(
        "storage.journal.journal_set:Journals.__init__:number.1",
        "0 → 1",
        "An opening sets the tag before it writes the first group.",
    ),
    Equivalent(
        "storage.journal.journal_set:Journals._take_over:swap.1",
        "if self.active is not None: self._written_before … elf.active.close() ↔ writer.metadata_tag "
        "= self._metadata_tag",
        "Nothing is written in between, and neither statement uses what the other changes.",
    ),
    Equivalent(
        "storage.journal.journal_set:Journals.roll:swap.2",
        "self.note_ends({writer.journal_id: 0}) ↔ writer.close()",
        "Under one lock, and neither statement uses what the other changes.",
    ),
    Equivalent(
        "storage.commit.committer:Committer.__init__:number.1",
        "1 → 2",
        "A number that no count of groups equals: any negative one is.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._admit:condition.3",
        "not self._store_state.is_open or group.refused is not None → True",
        "A short cut: the check that it saves raises in these two cases only.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._answer:swap.2",
        "if self.waiters.waiting: self._wake_waiters(group) ↔ if group.has_futures: "
        "self._answer_futures(group)",
        "The group is over before both: no promise says which of two waiting callers is told first.",
    ),
    Equivalent(
        "storage.commit.pending:ClientEntry.join:condition.4",
        "facts.digest_type is _CRC32C → False",
        "A short cut for the digest type of most ledgers: the general case computes the same size.",
    ),
    Equivalent(
        "storage.commit.portions:_members:compare.1",
        "group.size <= size_max → group.size < size_max",
        "A group of exactly this size: the loop after it makes the same single portion.",
    ),
    Equivalent(
        "storage.commit.queue:CommitQueue.end:drop.8",
        "return → left out",
        "It wakes callers once more, which look at the state of their group and wait on.",
    ),
    Equivalent(
        "storage.journal.journal_set:Journals._fill_draft:compare.1",
        "missing > 0 → missing >= 0",
        "To fill a draft with nothing writes the same header again, before the journal has its name.",
    ),
    Equivalent(
        "storage.journal.writer:JournalWriter._write_pieces:swap.2",
        "assembly.writelines(journal_seal.atomic_prefix(seal)) ↔ *pieces, last = _pieces(group)",
        "The pieces are slices of the group, which the memory that is written has no part in.",
    ),
    Equivalent(
        "storage.memtable.table:Memtable.insert:compare.2",
        "min(map(len, records), default=0) < front_size → min(map(len, records), default=0) <= front_size",
        "The way for short records inserts the others too, one by one, into the same run.",
    ),
    Equivalent(
        "storage.memtable.table:Tables.__post_init__:swap.1",
        "object.__setattr__(self, 'both', (self.active,)  … ive, self.frozen)) ↔ if self.frozen is "
        "not None: self.frozen.freeze()",
        "No thread has the tables before the constructor returns.",
    ),
    Equivalent(
        "storage.entrylog.log_set:EntryLogs._with_room:swap.3",
        "log_id = next_log_id(taken_by(self._directory.names()), self.last_log) ↔ "
        "self._names_are_durable = False",
        "One thread, and neither statement uses what the other changes.",
    ),
    Equivalent(
        "storage.entrylog.writer:_joined:condition.1",
        "size > _SMALL * len(buffers) → True",
        "How many buffers are joined for one write: the same bytes are written at the same places.",
    ),
    Equivalent(
        "storage.entrylog.writer:_joined:condition.2",
        "size > _SMALL * len(buffers) → False",
        "How many buffers are joined for one write: the same bytes are written at the same places.",
    ),
    Equivalent(
        "storage.entrylog.writer:_joined:extreme.2",
        "max(1, _WRITE_SIZE * len(buffers) // max(1, size)) → 1",
        "How many buffers are joined for one write: the same bytes are written at the same places.",
    ),
    Equivalent(
        "storage.disk.posix:_Descriptor.close:number.1",
        "1 → 2",
        "Any negative number says that there is no descriptor.",
    ),
    Equivalent(
        "storage.disk.cookie:load:number.3",
        "1 → 2",
        "One byte more than the longest cookie tells that a file is too long; two bytes tell the same.",
    ),
    Equivalent(
        "storage.index.lmdb.page_checksums:PageChecksums._is_stale:compare.1",
        "self._end > _SIZE_SMALL → self._end >= _SIZE_SMALL",
        "A limit of the size from which a file is rewritten; what it says is the same.",
    ),
    Equivalent(
        "storage.index.lmdb.page_checksums:PageChecksums._make_room:compare.1",
        "self._end + size <= self._room_end → self._end + size < self._room_end",
        "Room of exactly this size: more is filled with zeros in advance, and the records are the same.",
    ),
    Equivalent(
        "recovery.replay.apply:JournalApplier._leave_in_journals:swap.2",
        "self._finish_checkpoint() ↔ del journals[0]",
        "A checkpoint that fails ends the opening, so that nothing sees the list.",
    ),
    Equivalent(
        "recovery.replay.apply:JournalApplier._freeze:swap.1",
        "for one in journals: self.records += one.records … _report_progress() ↔ slot.tables = "
        "Tables(Memtable(journals[-1].end), … bles.active.rows))",
        "The counts and the progress are reported in the same order, and no reader has the tables yet.",
    ),
    Equivalent(
        "recovery.replay.apply:JournalApplier._apply:swap.2",
        "for _, record in batch.special: self._apply_metadata(record, table) ↔ self.records += "
        "len(batch.records)",
        "One thread, and the count is reported only after both.",
    ),
    Equivalent(
        "recovery.opening.reconcile:reconcile:swap.1",
        "evidence.index.sync() ↔ mark = evidence.mark",
        "The mark was read before, and its value does not change with the sync.",
    ),
    Equivalent(
        "recovery.opening.open_store:open_store:swap.1",
        "parent = PosixDirectory(Path(root.path).parent) ↔ root.make()",
        "Making the object of the parent directory reads nothing.",
    ),
    Equivalent(
        "recovery.handover.handover:Handover.run:number.2",
        "0 → 1",
        "The cookies of both directories get the same content.",
    ),
    Equivalent(
        "recovery.handover.strip_logs:_LogStripper._write:swap.2",
        "self.done.written.append(name) ↔ self.done.blanked += len(content.deleted_records)",
        "Both are read only when all logs are done.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._check_open:swap.1",
        "self._store_state.check_writes() ↔ if isinstance(work, PendingEntries): self._store … "
        "rk.access.purpose)",
        "Which of two errors is raised first, if both are true: no promise says.",
    ),
    Equivalent(
        "storage.commit.committer:Committer.proceed:swap.4",
        "if group.step == SYNC: journals.durable_up_to =  … gh == SYNC: return ↔ active = "
        "self._slot.tables.active",
        "No step before the end of the group changes which table is active.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._check_open:swap.2",
        "if isinstance(work, PendingEntries): self._store … rk.access.purpose) ↔ if group.refused is "
        "not None: raise self._store_ … old(group.refused)",
        "Which of two errors is raised first, if both are true: no promise says.",
    ),
    Equivalent(
        "storage.commit.committer:Committer.proceed:swap.20",
        "if store_state.failure is None: self.after_commit() ↔ group.entries, group.portions, group.leader = "
        "(NO_ENTRIES, None, None)",
        "What is called after a commit only wakes a worker, and does not know the group.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._erase:swap.5",
        "self._states.release(one.state) ↔ one.is_done = True",
        "Both are done before the group is over, and neither uses what the other changes.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._answer:condition.5",
        "group.has_futures → True",
        "A short cut: without a future the loop finds none.",
    ),
    Equivalent(
        "recovery.opening.open_store:Opening._recover_locked:extreme.1",
        "max(_EXTENTS_MIN, config.memtable_size_max // _MEMORY_OF_AN_EXTENT) → min(_EXTENTS_MIN, "
        "config.memtable_size_max // _MEMORY_OF_AN_EXTENT)",
        "How much is noted of journals decides how a long replay is done, and not what it finds.",
    ),
    Equivalent(
        "recovery.opening.open_store:Opening._recover_locked:extreme.2",
        "max(_EXTENTS_MIN, config.memtable_size_max // _MEMORY_OF_AN_EXTENT) → _EXTENTS_MIN",
        "How much is noted of journals decides how a long replay is done, and not what it finds.",
    ),
    Equivalent(
        "recovery.opening.open_store:Opening._recover_locked:extreme.3",
        "max(_EXTENTS_MIN, config.memtable_size_max // _MEMORY_OF_AN_EXTENT) → "
        "config.memtable_size_max // _MEMORY_OF_AN_EXTENT",
        "How much is noted of journals decides how a long replay is done, and not what it finds.",
    ),
    Equivalent(
        "storage.disk.posix:PosixWriteFile.write:condition.5",
        "written == len(buffer) → False",
        "After a whole write it writes the empty rest: no byte more, at the same place.",
    ),
    Equivalent(
        "storage.commit.portions:_members:swap.1",
        "if group.size <= size_max: if group.entries: yie … oup.entries return ↔ members: "
        "list[PendingEntries] = []",
        "A new list of this call, which the other statement neither reads nor changes.",
    ),
    Equivalent(
        "storage.commit.queue:CommitQueue.go:swap.4",
        "with self.lock: following = self.open if not gro … oup.is_left = True ↔ _open(group.gate)",
        "A caller that is woken looks at the state of its group, which is over before both; whoever "
        "comes last hands over the lead once.",
    ),
    Equivalent(
        "storage.commit.queue:CommitQueue.go:swap.1",
        "is_slow, group.passed_at = (self._is_slow(now - group.passed_at), now) ↔ group.waiting -= {caller}",
        "Neither statement uses what the other changes: how slow a caller is does not depend on how "
        "many wait.",
    ),
    Equivalent(
        "storage.commit.queue:CommitQueue.__init__:number.1",
        "0 → 1",
        "It names the thread that leads, and no thread has the number 0 or 1.",
    ),
    Equivalent(
        "storage.memtable.ledger_entries:LedgerEntries.chunks:condition.4",
        "not skip → False",
        "A short cut that saves a copy: with nothing truncated the general case makes the same chunks.",
    ),
    Equivalent(
        "recovery.replay.durable_extents:_proven:number.1",
        "0 → 1",
        "A journal begins with its header, so that no record begins before offset 1.",
    ),
    Equivalent(
        "storage.ledgers.state:LedgerStates.of:condition.1",
        "self._kept.get(ledger_id) or self._shared.get(ledger_id) → self._shared.get(ledger_id)",
        "A short cut: a state that is kept is among the shared ones too.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._fail:swap.4",
        "work.state.lost = error ↔ self._states.keep(work.state)",
        "The work holds the state meanwhile, and to keep it does not look at the loss.",
    ),
    Equivalent(
        "storage.index.lmdb.page_checksums:_loaded:number.2",
        "0 → 1",
        "Each file of LMDB has more than one page, so that neither default is beyond its end.",
    ),
    Equivalent(
        "storage.entrylog.writer:EntryLogWriter.seal:swap.6",
        "self.unsynced = 0 ↔ self.close()",
        "Closing a log does not look at how much of it is not synced.",
    ),
    Equivalent(
        "recovery.opening.rebuild_index:_rebuild_ours:swap.2",
        "if newest != loaded.rows or loaded.torn is not N … ws: rows.rewrite() ↔ sequence = "
        "mark.trailer.rows_sequence",
        "The number is only read from the mark, which the other statement does not change.",
    ),
    Equivalent(
        "recovery.replay.journals:Replay.tombstone:condition.1",
        "ledger_id not in self._tombstones → True",
        "A short cut: while journals are replayed, a second look-up of the same record has the same answer.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._wake_waiters:swap.2",
        "self.waiters.wake(ROOM) ↔ erased = [one for erasure in group.erasures for  … n erasure.deletes]",
        "A new list of this call, which waking callers does not change.",
    ),
    Equivalent(
        "recovery.rebuild.index_builder:tombstone_positions:number.1",
        "0 → 1",
        "No log has the rank that stands for the end of all logs, so that the offset in it is never "
        "compared.",
    ),
    Equivalent(
        "storage.index.lmdb.environment:_replace:answer.1",
        "False → True",
        "It only makes the commit use up loose pages, of which it has none: two fillers are written again.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:swap.10",
        "if group.error is not None and (not all((one.is_ …  raise group.error ↔ delete_group.step = ERASED",
        "After an error the group of deletes is ended, and no thread looks at its step any more.",
    ),
    Equivalent(
        "storage.index.lmdb.environment:_remove_before:number.7",
        "0 → 1",
        "How often a commit of the index lets other threads run: it writes the same.",
    ),
    Equivalent(
        "storage.index.lmdb.page_checksums:_live_after:number.2",
        "1 → 2",
        "One more page that is not live, which the accounts are filled up with anyway.",
    ),
    Equivalent(
        "recovery.opening.reconcile:_merge_metadata:swap.5",
        "for row in differing: change.remove_before(row.l … ow.first_entry_id) ↔ change.put_rows(differing)",
        "A change of the index is committed as a whole, and locations and records are apart in it.",
    ),
    Equivalent(
        "recovery.rebuild.entry_log_chain:_kept_logs:swap.3",
        "check_log(directory, LogPosition(one.log_id, end)) ↔ logs.append((one.log_id, end if end > "
        "entrylog_f … R_SIZE else None))",
        "A new list of this call, which nothing uses if a log is missing or short.",
    ),
    Equivalent(
        "recovery.replay.journals:Replay.__init__:compare.2",
        "extents_max > 0 → extents_max >= 0",
        "Extents of at most 0 entries are noted: a journal without entries has none, any other one is"
        " not plain.",
    ),
    Equivalent(
        "storage.commit.queue:_open:drop.2",
        "return → left out",
        "Nothing comes after it in the function.",
    ),
    Equivalent(
        "storage.journal.writer:JournalWriter._write_piece:swap.2",
        "self._file.write(at, (assembled[:whole],)) ↔ rest = bytes(assembled[whole:size])",
        "A copy of a part of the buffer, which a write of the other part does not change.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._erase:swap.4",
        "one.state.restart(self._metadata.find(one.state.ledger_id) or one.row) ↔ "
        "self._states.release(one.state)",
        "The delete holds the state meanwhile, so that every caller gets this one, before and after "
        "its release.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:swap.9",
        "if not group.is_over: self._committer.commit(delete_group.erasure) ↔ if group.error is not "
        "None and (not all((one.is_ …  raise group.error",
        "An error of that commit has stopped the store, and a delete that is not done raises the "
        "failure in any case.",
    ),
    Equivalent(
        "recovery.replay.durable_extents:durable_extents:compare.2",
        "one.scan.start < end → one.scan.start <= end",
        "An empty part of a journal has no entries: it is left there, or read, with the same result.",
    ),
    Equivalent(
        "storage.checkpoint.checkpointer:Checkpointer.request:number.1",
        "1 → 2",
        "The numbers of requests are only compared: each is larger than the one before.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:swap.3",
        "if not deletes: delete_group.step = ERASED return ↔ rows = "
        "self._metadata.persist_tombstones({one.st … r one in deletes})",
        "Without deletes there are no tombstones: nothing is written.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:swap.4",
        "delete_group.rows = rows ↔ for one, row in zip(deletes, rows, strict=True): one.row = row",
        "One thread, and neither statement uses what the other changes.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:swap.5",
        "for one, row in zip(deletes, rows, strict=True): one.row = row ↔ delete_group.step = HAND_BACK",
        "No signal handler runs in the thread that makes deletes, and no other thread looks at the step.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:swap.8",
        "self._committer.enqueue(delete_group.erasure) ↔ delete_group.step = ERASE",
        "To put an erasure into the open group never fails, and no other thread looks at the step.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:condition.11",
        "delete_group.step == ERASE → True",
        "It is the last step: a group that has taken it is ended, and not led again.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:condition.13",
        "not group.is_over → True",
        "A short cut: a commit whose group is over returns at once.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:condition.15",
        "group.error is not None and (not all((one.is_don …  one in deletes))) → False",
        "An error that leaves a delete undone has stopped the store, and the delete raises the "
        "failure of the store.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:condition.17",
        "group.error is not None and (not all((one.is_don …  one in deletes))) → group.error is not None",
        "A delete that is done is answered so, whatever error its group has.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:condition.18",
        "not all((one.is_done for one in deletes)) → all((one.is_done for one in deletes))",
        "A delete that is done is answered so; any other raises the failure of the store.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:logic.1",
        "group.error is not None and (not all((one.is_don …  one in deletes))) → group.error is not "
        "None or not all((one.is_done for one in deletes))",
        "A delete that is done is answered so, whatever error its group has.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:compare.1",
        "group.error is not None → group.error is None",
        "An error that leaves a delete undone has stopped the store, and the delete raises the "
        "failure of the store.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.fail:swap.1",
        "delete_group.error = error ↔ if not isinstance(error, DiskFull): self._store_state.fail(error)",
        "The error of the group is read only after the end of the group.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.end:swap.1",
        "if delete_group.erasure is None: for one in dele … tes: one.release() ↔ "
        "self.queue.end(delete_group)",
        "An add that comes in between waits for the ledger, and is woken after both.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.end:condition.1",
        "delete_group.erasure is None → True",
        "The commit of the erasure has released the ledgers before, and a second release does nothing.",
    ),
    Equivalent(
        "storage.commit.committer:Committer.proceed:condition.39",
        "len(entries) < JOINED_MIN → True",
        "A short cut: entries that are not joined are put into the table one by one, with the same result.",
    ),
    Equivalent(
        "storage.commit.committer:Committer.proceed:swap.11",
        "self._settle_portion(group) ↔ is_last = group.at + 1 == len(portions)",
        "Neither statement uses what the other changes: to settle a portion does not change its number.",
    ),
    Equivalent(
        "storage.commit.committer:Committer.proceed:condition.71",
        "group.step == OVER → True",
        "A group whose end is repeated has ended already: the second end does nothing.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._answer:condition.3",
        "self.waiters.waiting → True",
        "A short cut: where no caller waits none is woken.",
    ),
    Equivalent(
        "storage.commit.committer:Committer._resume:swap.3",
        "group.is_repeated = True ↔ if group.step < OVER: if not is_asked and (not i … .forget_unsynced()",
        "Neither statement uses what the other changes.",
    ),
    Equivalent(
        "storage.commit.deletes:Deletes.proceed:condition.16",
        "group.error is not None and (not all((one.is_don …  one in deletes))) → not "
        "all((one.is_done for one in deletes))",
        "Without an error of the group no delete of it is undone.",
    ),
    Equivalent(
        "storage.commit.portions:_parts:swap.1",
        "if work.size <= size_max: yield work return ↔ first, size, length = (0, 0, work.length - "
        "sum(m … , work.payloads)))",
        "Three numbers of this call, which are not used if the work fits.",
    ),
    Equivalent(
        "storage.commit.queue:CommitQueue.end:swap.3",
        "if self._hurry: self._hurry -= 1 else: self._nex … ._next_hurry // 2) ↔ group.passed_at = "
        "self._clock()",
        "Neither statement uses what the other changes.",
    ),
    Equivalent(
        "storage.checkpoint.checkpointer:_free_slowly:number.1",
        "0 → 1",
        "When other threads may run: the same entries are freed in the same order.",
    ),
    Equivalent(
        "storage.checkpoint.checkpointer:_free_slowly:compare.2",
        "left <= 0 → left < 0",
        "When other threads may run: the same entries are freed in the same order.",
    ),
    Equivalent(
        "storage.checkpoint.checkpointer:Checkpointer.finish:swap.1",
        "self._is_ending = True ↔ self.request()",
        "No step is taken in between.",
    ),
    Equivalent(
        "storage.checkpoint.checkpointer:Checkpointer.finish:swap.2",
        "self.request() ↔ self._sync_step = _SYNC_STEP_WITHOUT_ADDS",
        "No step is taken in between.",
    ),
    Equivalent(
        "storage.ledgers.metadata:LedgerMetadata.hide_deleted:swap.4",
        "if known is not None and known.change < row.chan … own[row.ledger_id] ↔ tables.active.put_row(row)",
        "A reader in between finds no entry of the ledger, whichever of its records it reads.",
    ),
    Equivalent(
        "storage.index.lmdb.index:LmdbIndex._counted_part:number.4",
        "0 → 1",
        "The second of the two numbers is not used.",
    ),
    Equivalent(
        "storage.ledgers.metadata:LedgerMetadata._may_be_purged:condition.1",
        "ledger_id in table.tombstones → True",
        "Each record has a number of its own, so that no living record has that of the given tombstone.",
    ),
    Equivalent(
        "storage.memtable.ledger_entries:LedgerEntries.parts:condition.1",
        "self.strays or front_size != self.front_size or at < self.skip → True",
        "A short cut: the caller then puts the same parts together from the records.",
    ),
    Equivalent(
        "storage.memtable.ledger_entries:LedgerEntries.parts:compare.2",
        "at < self.skip → at <= self.skip",
        "A short cut: the caller then puts the same parts together from the records.",
    ),
    Equivalent(
        "storage.ledgers.state:LedgerStates.known:condition.1",
        "self._kept.get(ledger_id) or self._shared.get(ledger_id) → self._shared.get(ledger_id)",
        "A short cut: a state that is kept is among the shared ones too.",
    ),
    Equivalent(
        "storage.entrylog.log_set:_later:compare.3",
        "(last - newest) % _COUNT < _COUNT // 2 → (last - newest) % _COUNT <= _COUNT // 2",
        "Of two ids that are half a circle apart none is the later one.",
    ),
    Equivalent(
        "storage.index.lmdb.environment:LmdbEnvironment._attempt:swap.2",
        "self._change(transaction, batch) ↔ if state is not None: transaction.put(_STATE, state, "
        "db=self._states)",
        "Both are parts of one transaction, and the state is apart from all else.",
    ),
    Equivalent(
        "storage.index.lmdb.environment:LmdbEnvironment._use_loose_pages:number.2",
        "4 → 5",
        "A filler of this size too is larger than half a page and smaller than a whole one.",
    ),
    Equivalent(
        "storage.index.lmdb.environment:_remove_before:condition.10",
        "removed % _BETWEEN_YIELDS == 0 → True",
        "How often a commit of the index lets other threads run: it writes the same.",
    ),
    Equivalent(
        "storage.index.lmdb.index:LmdbIndex.all_rows:condition.6",
        "are_rows and table.living.keys() | table.tombsto …  == encoded.keys() → table.living.keys() "
        "| table.tombstones.keys() == encoded.keys()",
        "A damaged row is not taken, so that its key is missing.",
    ),
    Equivalent(
        "recovery.replay.durable_extents:_between:condition.1",
        "not start and extents.nth(packed, count - 1).offset < end → False",
        "A short cut: the general case finds the same extents.",
    ),
    Equivalent(
        "recovery.replay.torn_tails:_has_records:compare.1",
        "start < end → start <= end",
        "From the end on no item lies before the end: the answer is False all the same.",
    ),
    Equivalent(
        "recovery.replay.torn_tails:_copy:swap.1",
        "copy.close() ↔ quarantine.sync()",
        "The copy is durable before, and closing it has nothing to do with its name.",
    ),
    Equivalent(
        "recovery.bookkeeper.merge_metadata:MetadataMerge.rows:number.2",
        "1 → 2",
        "Changes of rows are compared, never counted: only their order matters.",
    ),
    Equivalent(
        "recovery.rebuild.entry_log_chain:in_creation_order:number.4",
        "1 → 2",
        "Only if the two largest of the gaps between all ids, which are thousands of millions, "
        "differ by one.",
    ),
    Equivalent(
        "storage.gc.compactor:Compactor.remove:condition.11",
        "not dead → False",
        "The removal of no logs returns at once, and changes nothing.",
    ),
    Equivalent(
        "storage.gc.proof:not_dead:drop.3",
        "continue → left out",
        "The index points at this very record, which is not before itself: the next step goes on, too.",
    ),
    Equivalent(
        "storage.gc.log_walk:walk:extreme.2",
        "min(entrylog_format.HEADER_SIZE, limit) → entrylog_format.HEADER_SIZE",
        "With a limit inside the header the walk ends at once from either place.",
    ),
    Equivalent(
        "storage.gc.policy:_decide_one:condition.26",
        "room is not None and log.live is not None and (log.live > room) "
        "→ room is not None and log.live > room",
        "A log whose live bytes are unknown has no share, and is kept for that reason before.",
    ),
    Equivalent(
        "storage.gc.exact:examine:number.1",
        "0 → 1",
        "The number of checkpoints that had ended is of use to a move only, and this walk moves nothing.",
    ),
    Equivalent(
        "storage.gc.exact:examine:swap.1",
        "for found in victim.chunks(): if isinstance(foun … nd)) yield AT_ONCE ↔ dead = "
        "DeadRecords(log_id, LedgerLookups(state, visible, record_of))",
        "What is dead is looked up only when a record is asked for, which comes after both.",
    ),
    Equivalent(
        "storage.gc.exact:examine:swap.2",
        "live += sum((one.records.size for one in found)) ↔ yield AT_ONCE",
        "The sum is not shown before the end: the caller that is given the pause cannot see it.",
    ),
    Equivalent(
        "storage.gc.exact:examine:swap.3",
        "for run in item.runs: for kept in not_dead(visib … rn (live, problem) ↔ yield AT_ONCE",
        "The pause comes before the block instead of after it: the same records are looked up.",
    ),
    Equivalent(
        "storage.gc.victim:Victim._live:condition.5",
        "numbers and digester is not None and digester.verifies → digester is not None and digester.verifies",
        "A short cut: of no records none has a wrong digest.",
    ),
    Equivalent(
        "storage.index.lmdb.index:_record_size:number.2",
        "len(batch.runs) + len(batch.moves) + len(batch.r … n(batch.truncated) → len(batch.runs) + "
        "len(batch.moves) + len(batch.r … n(batch.truncated)",
        "A truncated ledger counts sixty-four pages for its entries besides, and writes seventeen at most.",
    ),
    Equivalent(
        "storage.index.lmdb.index:_record_size:condition.5",
        "batch.removed or batch.truncated or batch.removed_rows → batch.removed or batch.truncated",
        "A removed record counts four pages among the written ones, and frees one at most.",
    ),
    Equivalent(
        "storage.index.lmdb.index:_record_size:condition.6",
        "frees_pages → True",
        "An upper estimate that is larger: more room is filled in advance, and the records are the same.",
    ),
)
