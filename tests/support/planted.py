"""Planted bugs: each breaks one rule of the protocol, by one small change of our own code.

The list is that of the orders in docs/durability.md and of the classic mistakes of stores like this one, not
one of mistakes that are easy to find. A bug is told by the text it replaces, which must stand exactly once in
its file.

Two orders are missing because breaking them alone loses nothing: the mark before the index, and a mark
taken from an index that is ahead and was not made durable. Either leaves a mark of a later generation
than the index has; then the index is made again from the entry logs, which were durable before, and the
journals go only when both are there. What would break that is in the list: the trim in front of the
index, and an index believed though it is behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Change:
    """Other text in one file."""

    file: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        path = root / self.file
        text = path.read_text()
        assert text.count(self.old) == 1, f"{self.file}: {text.count(self.old)} times {self.old!r}"
        path.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, the rule that it breaks, and who is expected to find it."""

    name: str
    rule: str
    changes: tuple[Change, ...]
    tests: tuple[str, ...] = ()
    """Tests to ask before the crash simulation, where a crash alone does not show it."""


def _one(name: str, rule: str, file: str, old: str, new: str, *tests: str) -> Planted:
    return Planted(name, rule, (Change(file, old, new),), tests)


JOURNAL = "storage/journal_writer.py"
JOURNALS = "storage/journals.py"
COMMIT = "storage/commit.py"
ALONE = "storage/alone.py"
CHECKPOINT = "storage/checkpoint.py"
LOGS = "storage/entry_logs.py"
LOG = "storage/entrylog_writer.py"
MARK = "storage/lastmark.py"
SCAN = "storage/journal_scan.py"
OPENING = "recovery/opening.py"
FOUNDING = "recovery/founding.py"
REPLAY = "recovery/replay.py"
REGISTRY = "storage/registry.py"
ROWS = "storage/ledger_rows.py"

PLANTED = (
    # ── the journal ──────────────────────────────────────────────────────────────────────────────────
    _one(
        "journal-not-synced",
        "a group is durable before it is answered",
        JOURNAL,
        "        self._file.sync()\n        self.end = self._written_until\n",
        "        self.end = self._written_until\n",
    ),
    _one(
        "journal-name-not-synced",
        "a journal's name is durable before the first answer into it",
        JOURNAL,
        "        self._directory.rename(filenames.draft(self._name), self._name)\n"
        "        # Before the first acknowledgement: a power cut must not take the name away from"
        " acknowledged groups.\n"
        "        self._directory.sync()\n",
        "        self._directory.rename(filenames.draft(self._name), self._name)\n",
    ),
    _one(
        "journal-named-before-it-is-synced",
        "a journal's name appears only by renaming a synced draft",
        JOURNAL,
        "        self._file.zero_fill(self.filled_until, size)\n        self._file.sync()\n",
        "        self._file.zero_fill(self.filled_until, size)\n",
    ),
    _one(
        "visible-before-sync",
        "nothing is seen before its sync",
        COMMIT,
        "                    self._journals.sync()\n                    yield\n"
        "                    self._insert(step)\n",
        "                    self._insert(step)\n                    yield\n"
        "                    self._journals.sync()\n",
    ),
    _one(
        "alone-visible-before-sync",
        "nothing is seen before its sync, of who meets nobody either",
        ALONE,
        "            journals.durable_up_to = journal.sync()\n"
        "            journals.groups += 1\n"
        "            active.insert_parts(tail.ledger_id, first_id, fronts, payloads, size)\n",
        "            active.insert_parts(tail.ledger_id, first_id, fronts, payloads, size)\n"
        "            journals.durable_up_to = journal.sync()\n"
        "            journals.groups += 1\n",
        "tests/storage/test_failures.py",
    ),
    _one(
        "alone-past-those-who-wait",
        "what waits has ids before what comes, and is written first",
        ALONE,
        "turn.waiting or load.runs or load.statements",
        "turn.waiting or load.statements",
        "tests/storage/test_adding_alone.py",
    ),
    _one(
        "alone-no-latch-after-an-error",
        "after an error of the disk nobody is answered, whoever has met it",
        ALONE,
        "                latch.failure, latch.is_open = latch.failure or error, False\n"
        "            if not isinstance(error, Exception):\n"
        "                raise\n"
        "            latch.fail(error)\n",
        "                tail.next_id, tail.next_length = first_id, tail.end.length\n"
        "                journal._written_until = journal.end\n"
        "            if not isinstance(error, Exception):\n"
        "                raise\n",
        "tests/storage/test_adding_alone.py",
    ),
    _one(
        "seal-vouches-for-itself",
        "a seal vouches for what was durable before its group, not for the group",
        JOURNAL,
        "sequence, self.end, durable_up_to, count, flags)\n",
        "sequence, self.end, JournalPosition(self.journal_id, self.end + 4096), count, flags)\n",
    ),
    _one(
        "sync-retried-after-an-error",
        "after a failed sync, stop: a second one proves nothing",
        JOURNAL,
        "        self._file.sync()\n        self.end = self._written_until\n",
        "        try:\n            self._file.sync()\n"
        "        except OSError:\n            self._file.sync()\n"
        "        self.end = self._written_until\n",
    ),
    _one(
        "no-latch-after-an-error",
        "after an error nothing more is written to the file",
        COMMIT,
        "        if not isinstance(error, DiskFull):\n            self._latch.fail(error)\n"
        "            return\n",
        "        if not isinstance(error, DiskFull):\n            self._tails.hand_back()\n"
        "            self._journals.active._written_until = self._journals.active.end\n            return\n",
    ),
    _one(
        "append-many-not-atomic",
        "a group that began as atomic is kept whole or not at all",
        "storage/grouping.py",
        "GroupFlag.ATOMIC if is_atomic else GroupFlag.NONE",
        "GroupFlag.NONE",
    ),
    _one(
        "no-checksum",
        "a group counts only if its checksum matches",
        "storage/journal_reader.py",
        "return stored.flaw if checksum == stored.checksum else Flaw.CHECKSUM",
        "return stored.flaw",
    ),
    _one(
        "announced-before-its-name",
        "the mark speaks of a journal only when its name is durable",
        MARK,
        "            yield\n"
        "            # Behind the name: a power cut may take away one that is not durable yet.\n"
        "            self._publish(mark)\n",
        "            self._publish(mark)\n            yield\n",
    ),
    _one(
        "not-announced",
        "a new journal is announced before anything in it is acknowledged",
        MARK,
        "            # Behind the name: a power cut may take away one that is not durable yet.\n"
        "            self._publish(mark)\n",
        "",
        "tests/storage/test_newest_journal.py",
    ),
    _one(
        "announcement-forgotten",
        "a checkpoint keeps what was announced",
        MARK,
        "max(newest_named(self._stored), state.mark.journal_id)",
        "state.mark.journal_id",
        "tests/storage/test_newest_journal.py",
    ),
    _one(
        "announcement-takes-the-mark-back",
        "an announcement keeps what a checkpoint has moved",
        MARK,
        "        publish(self._directory)\n        self._stored = mark\n",
        "        publish(self._directory)\n",
    ),
    _one(
        "cut-journal-not-missed",
        "a journal that is shorter than it was filled has lost its end",
        SCAN,
        "    if reader.has_lost_its_end and",
        "    if not reader and",
        "tests/storage/test_newest_journal.py",
    ),
    _one(
        "another-s-header-believed",
        "a header whose salt no group fits may be another journal's",
        SCAN,
        "        if stranger is not None:\n",
        "        if stranger is None:\n            pass\n        elif not stranger:\n",
        "tests/storage/test_newest_journal.py",
    ),
    _one(
        "stranger-where-the-header-is-confirmed",
        "what a seal confirms no other seal denies",
        SCAN,
        "    if found.durable_up_to is None and not found.is_sound:\n",
        "    if not found.is_sound:\n",
        "tests/recovery/test_chain.py",
    ),
    # ── the checkpoint ───────────────────────────────────────────────────────────────────────────────
    _one(
        "entry-log-not-synced",
        "entry logs are durable before the index places entries in them",
        LOG,
        "        self._fill_block()\n        with self._writing() as file:\n            file.sync()\n",
        "        self._fill_block()\n",
    ),
    _one(
        "entry-log-name-not-synced",
        "an entry log's name is durable before the index places entries in it",
        CHECKPOINT,
        "        self._logs.sync_names()\n",
        "",
    ),
    _one(
        "entry-log-header-not-synced",
        "a named log of ours says whose it is, or a leftover could never be removed",
        LOG,
        "            file.sync()\n            directory.rename(draft, name)\n",
        "            directory.rename(draft, name)\n",
        "tests/storage/test_entrylog_writer.py",
    ),
    _one(
        "mark-before-the-logs",
        "the mark comes last: entry logs, index, mark",
        CHECKPOINT,
        "        places = yield from self._write_logs(frozen)\n",
        "        import dataclasses\n"
        "        self.state = dataclasses.replace(self.state, mark=frozen.covers_until)\n"
        "        yield from self._move_mark()\n"
        "        places = yield from self._write_logs(frozen)\n",
    ),
    _one(
        "mark-not-synced-before-the-rename",
        "a durable name never precedes durable content",
        MARK,
        "        file.write(0, [codec.encode(mark)])\n"
        "        # Before the rename: a durable name must never precede durable content.\n"
        "        file.sync()\n",
        "        file.write(0, [codec.encode(mark)])\n",
    ),
    _one(
        "mark-s-name-not-synced",
        "journals are trimmed only when the mark is durable",
        MARK,
        "    directory.rename(filenames.draft(filenames.LAST_MARK), filenames.LAST_MARK)\n"
        "    # Before anything is trimmed: a power cut that brings the old mark back must find"
        " its journals.\n"
        "    directory.sync()\n",
        "    directory.rename(filenames.draft(filenames.LAST_MARK), filenames.LAST_MARK)\n",
    ),
    Planted(
        "mark-in-place",
        "the mark is replaced by a rename, never rewritten",
        (
            Change(
                MARK,
                "    draft = filenames.draft(filenames.LAST_MARK)\n",
                "    draft = filenames.LAST_MARK\n",
            ),
            Change(
                MARK,
                "    directory.rename(filenames.draft(filenames.LAST_MARK), filenames.LAST_MARK)\n",
                "",
            ),
        ),
    ),
    _one(
        "trim-before-index-and-mark",
        "journals are trimmed when index and mark are durable",
        CHECKPOINT,
        "        yield from self._commit_index(frozen, places, rows)\n",
        "        journals.trim(self._journal_directory, frozen.covers_until.journal_id, 0)\n"
        "        yield from self._commit_index(frozen, places, rows)\n",
    ),
    _one(
        "trim-takes-the-marked-journal",
        "the journal that the mark names stays",
        JOURNALS,
        "if journal_id < marked_id]",
        "if journal_id <= marked_id]",
    ),
    _one(
        "mark-at-the-last-synced-position",
        "a mark covers what the frozen table covers, not what was synced last",
        CHECKPOINT,
        "mark=max(self.state.mark, frozen.covers_until)",
        "mark=max(self.state.mark, self._committer._journals.durable_up_to)",
    ),
    _one(
        "thaw-before-the-index",
        "readers leave the table only when the index has its entries",
        CHECKPOINT,
        "        self._logs.sync_names()\n",
        "        self._logs.sync_names()\n        self._committer.thaw()\n",
    ),
    _one(
        "log-retried-after-an-error",
        "a log that has met an error is given up: a second sync proves nothing",
        LOG,
        "            file.sync()\n        self.unsynced = 0\n\n    def seal",
        "            try:\n                file.sync()\n"
        "            except OSError:\n                file.sync()\n"
        "        self.unsynced = 0\n\n    def seal",
    ),
    _one(
        "failed-table-is-dropped",
        "a table whose checkpoint fails stays first in line",
        CHECKPOINT,
        "                self._logs.abandon()\n",
        "                self._logs.abandon()\n                return []\n",
        "tests/storage/test_holes.py",
        "tests/storage/test_failures.py",
    ),
    _one(
        "checkpoint-rewrites-a-committed-block",
        "a torn write never touches entries that count",
        LOG,
        "        self._fill_block()\n        with self._writing() as file:\n            file.sync()\n",
        "        with self._writing() as file:\n            file.sync()\n",
        "tests/storage/test_entrylog_writer.py",
    ),
    _one(
        "cache-keeps-old-places",
        "a copy that a newer one has replaced is never read again",
        CHECKPOINT,
        "        self._cache.forget({one.ledger_id for one in places})\n",
        "",
        "tests/test_store.py",
        "tests/storage/test_holes.py",
    ),
    # ── opening ──────────────────────────────────────────────────────────────────────────────────────
    _one(
        "what-was-read-counts-as-durable",
        "bytes that are read after a crash are not proven durable",
        REPLAY,
        "            yield Replayed(reader.journal_id, living, position <= self.durable_up_to)\n",
        "            yield Replayed(reader.journal_id, living, True)\n",
    ),
    Planted(
        "what-waits-counts-as-durable",
        "of what is left in the journals too only what a seal vouches for is durable",
        (
            Change("recovery/proven.py", "return min(one.end, durable_up_to.offset) if", "return one.end if"),
            Change(
                "recovery/replaying.py",
                "        return self._replay.durable_up_to\n",
                "        return journals[-1].end if journals else self._replay.durable_up_to\n",
            ),
        ),
    ),
    _one(
        "what-waits-is-written-down-unseen",
        "what waits in the journals is held against its checksum once more when it is written down",
        "storage/backlog.py",
        "    if not stretch.is_same(one, data):\n",
        "    if not data:\n",
        "tests/storage/test_backlog.py",
    ),
    _one(
        "what-waits-brings-a-ledger-back",
        "records of a deleted ledger are passed over where they stand, if they wait there too",
        "recovery/proven.py",
        "        if position.journal_id >= journal_id\n",
        "        if position.journal_id < 0\n",
    ),
    _one(
        "what-waits-forgets-what-was-said",
        "what the journals say of ledgers is written down with their entries",
        "recovery/replaying.py",
        "parts, rows.values(), unless",
        "parts, (), unless",
    ),
    _one(
        "what-waits-hides-a-newer-copy",
        "where an id comes again, the records are looked at one by one",
        "storage/journal_stretches.py",
        "            if first_id < end_ids.get(ledger_id, 0):\n",
        "            if first_id < 0:\n",
        "tests/storage/test_journal_stretches.py",
    ),
    _one(
        "carried-over-without-a-sync",
        "what is carried over is durable before its journal has a name",
        JOURNALS,
        "        writer.write(group, self.durable_up_to)\n        end = writer.sync()\n",
        "        writer.write(group, self.durable_up_to)\n        writer._file.sync = lambda: None\n"
        "        end = writer.sync()\n",
    ),
    _one(
        "names-not-synced-at-opening",
        "the directory read at opening may show names that a power cut takes away",
        FOUNDING,
        "        directory.sync()\n        return directory.names()\n",
        "        return directory.names()\n",
    ),
    _one(
        "index-behind-believed",
        "an index whose generation is below the mark's is an older copy",
        "recovery/indexing.py",
        "        return generation(mark) < state.generation\n",
        "        return True\n",
        "tests/storage/test_store_rot.py",
        "tests/storage/test_store_refusals.py",
        "tests/storage/test_failures.py",
    ),
    _one(
        "rot-taken-for-a-torn-tail",
        "damage in what a seal vouches for is rot, and refused",
        "recovery/chain.py",
        "Reach.COVERS if scan.end >= must_reach else Reach.SHORT",
        "Reach.COVERS",
        "tests/storage/test_store_rot.py",
        "tests/recovery/test_chain.py",
    ),
    _one(
        "missing-journal-not-noticed",
        "a journal that the mark's trailer names must be there",
        REPLAY,
        'Required(newest_journal, "the mark\'s trailer")] if newest_journal else []',
        'Required(newest_journal, "the mark\'s trailer")] if newest_journal < 0 else []',
        "tests/storage/test_store_refusals.py",
        "tests/storage/test_store_rot.py",
        "tests/storage/test_failures.py",
    ),
    _one(
        "leftover-logs-kept",
        "crash loops take bounded space",
        "recovery/leftovers.py",
        "header.origin.store_id == store_id:",
        "header.origin.store_id != store_id:",
        "tests/recovery/test_crash_sim.py",
    ),
    _one(
        "store-s-name-not-synced",
        "the directories of a store are durable before anything is acknowledged in it",
        FOUNDING,
        "        outer.sync()\n    layout.root.sync()\n",
        "        pass\n",
    ),
    _one(
        "cookie-not-synced",
        "a directory without its cookie is refused: the cookie is durable first",
        "storage/cookie.py",
        "        # Before the rename: a durable name must never precede durable content.\n"
        "        file.sync()\n",
        "",
    ),
    # ── the index ────────────────────────────────────────────────────────────────────────────────────
    _one(
        "index-not-synced",
        "a commit of the index is durable when it returns",
        "storage/lmdb_environment.py",
        "        max_spare_txns=_SPARE_READERS,\n",
        "        max_spare_txns=_SPARE_READERS,\n        sync=False,\n",
        "tests/storage/test_lmdb_index.py",
    ),
    _one(
        "index-made-in-place",
        "the index is made aside, and appears whole",
        "storage/lmdb_place.py",
        "        environment = make_environment(self._path / _DRAFT, self._map_size)\n",
        "        inner = self._directory.directory(filenames.INDEX)\n"
        "        inner.make()\n"
        "        environment = make_environment(self._path / filenames.INDEX, self._map_size)\n",
        "tests/storage/test_lmdb_index.py",
        "tests/storage/test_index_contract.py",
    ),
    _one(
        "index-name-not-synced",
        "the index's name is durable before anybody relies on it",
        "storage/lmdb_place.py",
        "        # Before anybody relies on it: LMDB never syncs a directory.\n"
        "        self._directory.sync()\n",
        "",
        "tests/storage/test_lmdb_index.py",
        "tests/storage/test_index_contract.py",
    ),
    _one(
        "page-sums-not-synced",
        "the checksums of a commit are durable before it is answered",
        "storage/page_sums.py",
        "            # Before the answer: what is acknowledged can be told from rot.\n"
        "            self._file.sync()\n",
        "            pass\n",
        "tests/storage/test_page_sums.py",
    ),
    _one(
        "page-sums-not-looked-at",
        "no page of the index is followed that is not what it was",
        "storage/page_sums.py",
        "        return known.damage(data) or PageSums(directory, data, known)\n",
        "        return PageSums(directory, data, known)\n",
        "tests/storage/test_page_sums.py",
        "tests/storage/test_index_rot.py",
    ),
    _one(
        "crash-taken-for-rot",
        "a crash between LMDB's commit and its checksums costs no index",
        "storage/page_sums.py",
        "    if head.meta.number != known.number + 1:\n",
        "    if head.meta.number != known.number:\n",
        "tests/storage/test_page_sums.py",
    ),
    _one(
        "overwrite-leaves-two-places",
        "an entry has one place",
        "storage/lmdb_environment.py",
        "    if codec.split_value(old)[0] == entry_id:\n        transaction.delete(key, old)\n",
        "",
        "tests/storage/test_index_contract.py",
        "tests/test_store.py",
    ),
    # ── what is said of ledgers ──────────────────────────────────────────────────────────────────────
    _one(
        "statement-not-journaled",
        "a fence or a confirmation is in the journal before it is answered",
        "storage/grouping.py",
        "    return Group([*group.buffers, *records], count, size, group.flags)\n",
        "    return group\n",
    ),
    _one(
        "statement-not-written-again",
        "what is said and not proven durable is written again, like an entry",
        "recovery/replaying.py",
        "            self.carried += [encoded for record in said if"
        " (encoded := _encoded(record)) is not None]\n",
        "            del said\n",
    ),
    _one(
        "fence-lets-adds-pass",
        "a fenced ledger takes no ordinary adds",
        "storage/tail.py",
        "            if access.purpose is Purpose.WRITING:\n",
        "            if access.purpose is None:\n",
        "tests/storage/test_warden.py",
    ),
    _one(
        "statement-without-a-key",
        "the key is logged in front of a fence too, or a bookie skips it",
        "storage/grouping.py",
        "chain(self.runs, self.statements)\n",
        "chain(self.runs, ())\n",
        "tests/storage/test_warden.py",
    ),
    _one(
        "digest-type-declared-too-late",
        "a digest type that nobody presumes is durable before the first answer under it",
        COMMIT,
        "        if revisions:\n",
        "        if not revisions:\n",
    ),
    _one(
        "rows-not-written-at-the-checkpoint",
        "what has changed of ledgers is in their rows before the journals go",
        REGISTRY,
        "            if rows:\n                self._append(rows)\n",
        "            self._known |= {row.ledger_id: row for row in rows}\n",
    ),
    _one(
        "rows-not-synced",
        "a group of rows is durable before anybody relies on it",
        ROWS,
        "            # Before anybody is answered, and before the next group is begun:"
        " only the last can be torn.\n"
        "            file.sync()\n",
        "",
    ),
    _one(
        "rows-draft-not-synced",
        "a file of rows has its name only when its content is durable",
        ROWS,
        "            # Before the rename: a durable name must never precede durable content.\n"
        "            file.sync()\n",
        "",
    ),
    _one(
        "rows-name-not-synced",
        "the name of a new file of rows is durable before anything names a group in it",
        ROWS,
        "            # Before anything names a group in it:"
        " a power cut must not bring the file before it back.\n"
        "            self._directory.sync()\n",
        "            pass\n",
    ),
    _one(
        "rows-believed-though-only-read",
        "rows that nothing vouches for are written again before they are used",
        "recovery/indexing.py",
        "    if loaded.sequence > loaded.proven_sequence or loaded.torn is not None"
        " or latest != loaded.rows:\n",
        "    if latest != loaded.rows:\n",
        "tests/storage/test_ledger_rows.py",
    ),
    _one(
        "delete-not-written-down",
        "a tombstone is in the rows before its answer",
        REGISTRY,
        "            self._append_surely(row)\n",
        "",
    ),
    _one(
        "delete-leaves-the-table",
        "what the tables hold of a deleted ledger is nobody's",
        REGISTRY,
        "            self._slot.tables.drop(ledger_id)\n",
        "",
    ),
    _one(
        "delete-leaves-the-index",
        "a deleted ledger has no places",
        REGISTRY,
        "                change.remove([ledger_id])\n",
        "",
        "tests/storage/test_warden.py",
    ),
    _one(
        "delete-forgets-where",
        "a tombstone kills everything up to the last group that was written",
        COMMIT,
        "            self._registry.erase(one.tail.ledger_id, self._journals.durable_up_to)\n",
        "            self._registry.erase(one.tail.ledger_id, type(self._journals.durable_up_to)(0, 0))\n",
    ),
    _one(
        "checkpoint-brings-a-ledger-back",
        "a checkpoint looks once more at what was deleted meanwhile",
        CHECKPOINT,
        "    return frozen.last_id(places.ledger_id) is not None\n",
        "    return True\n",
        "tests/storage/test_warden.py",
    ),
    _one(
        "tombstone-never-rests",
        "behind the first checkpoint a new ledger of that id counts, whatever its tombstone says",
        REGISTRY,
        "        return self._numbered(replace(row, tombstone=replace(tombstone, log=end)))\n",
        "        return row\n",
        "tests/storage/test_warden.py",
    ),
    _one(
        "tombstone-rests-too-early",
        "the checkpoint under way writes what the delete has killed: only the next one says from where on",
        REGISTRY,
        "        if tombstone is None or tombstone.log is not None or tombstone != frozen.tombstone:\n",
        "        if tombstone is None or tombstone.log is not None:\n",
        "tests/storage/test_warden.py",
    ),
    _one(
        "replay-brings-a-ledger-back",
        "records of a deleted ledger are passed over where they stand",
        REPLAY,
        "            living = self._living(batch, position) if self.tombstones else batch\n",
        "            living = batch\n",
    ),
    _one(
        "replay-brings-the-last-group-back",
        "the group at whose end a ledger was deleted was written before",
        REPLAY,
        "if end <= position}\n",
        "if end < position}\n",
    ),
    _one(
        "index-not-told-of-a-delete",
        "a delete that only the rows have heard of takes the places too",
        "recovery/indexing.py",
        "            change.remove(row.ledger_id for row in differing if is_deleted_since(row, indexed))\n",
        "",
        "tests/storage/test_warden.py",
    ),
    _one(
        "key-of-a-deleted-ledger-believed",
        "a ledger that is made again has its key in the journal again",
        COMMIT,
        "                self._journals.active.keyed.pop(one.tail.ledger_id, None)\n",
        "                pass\n",
        "tests/storage/test_warden.py",
    ),
    _one(
        "damaged-key-believed",
        "a key in a torn group counts only if it is known",
        "storage/journal_scan.py",
        " if verifier.knows_key(ledger_id, key):\n",
        " if (ledger_id, key):\n",
        "tests/recovery/test_chain.py",
    ),
    _one(
        "adoption-forgets-fences",
        "a fence in any journal that is left is kept",
        "recovery/merging.py",
        "            fenced=base.fenced or told.fenced,\n",
        "            fenced=base.fenced,\n",
        "tests/recovery/test_bookie_directories.py",
        "tests/recovery/test_adoption.py",
    ),
    _one(
        "rebuild-brings-a-ledger-back",
        "an index that is made again gives no place to what a tombstone kills",
        "recovery/placing.py",
        "        if self._is_dead(log, entry):\n            return\n",
        "",
        "tests/recovery/test_rebuild.py",
    ),
    # ── answers ──────────────────────────────────────────────────────────────────────────────────────
    _one(
        "unreadable-is-called-missing",
        "missing and unreadable are never the same",
        "storage/reading.py",
        '            raise _unreadable(ledger_id, entry_id, packed, "no record stands there")\n',
        "            return None  # type: ignore[return-value]\n",
        "tests/storage/test_store_rot.py",
        "tests/storage/test_failures.py",
    ),
    _one(
        "ids-skipped-by-a-full-disk",
        "what a full disk refuses never happened",
        COMMIT,
        "                load.refused = error\n            self._tails.hand_back()\n",
        "                load.refused = error\n",
        "tests/storage/test_failures.py",
    ),
)
