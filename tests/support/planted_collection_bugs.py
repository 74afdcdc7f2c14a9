"""Planted bugs of space reclamation. `planted_bugs` says what a planted bug is, and has them in its list.

Three rules of the design have no bug here, because no small change of the code breaks them: there is one
runner, so a slice cannot run beside a checkpoint; a slice cannot bound tombstones, because only checkpoints
write rows; and the mark is never behind at a removal, because each slice and each checkpoint moves it.
"""

from __future__ import annotations

from code_edits import Drop, Edit, EditAddress, InsertAfter, InsertBefore, Replace, Rewrite, Swap

RECLAIMER = "storage.checkpoint.reclaimer"
COMPACTOR = "storage.gc.compactor"
PROOF = "storage.gc.proof"
WALK = "storage.gc.log_walk"
TOMBSTONES = "storage.gc.tombstones"
ORDERS = "tests/storage/gc/test_orders.py"
UNITS = "tests/storage/gc/test_compactor.py"
PORT = "tests/storage/index/test_port_contract.py"


def _bug(
    name: str, rule: str, test: str, *changes: tuple[str, str, Edit]
) -> tuple[str, str, tuple[EditAddress, ...], tuple[str, ...]]:
    return name, rule, tuple(EditAddress(*change) for change in changes), (test,)


COLLECTION = (
    # ── a slice ──────────────────────────────────────────────────────────────────────────────────────
    _bug(
        "moved-copies-not-synced",
        "moved copies are durable before the index points at them",
        ORDERS,
        (RECLAIMER, "Reclaimer.move", Drop("if moved: ...")),
    ),
    _bug(
        "name-of-moved-copies-not-synced",
        "the name of the log with moved copies is durable before the index points at them",
        ORDERS,
        (RECLAIMER, "Reclaimer.move", Drop("self._logs.sync_names()")),
    ),
    _bug(
        "move-without-compare",
        "an entry is moved only if the index still points at the copy that was moved",
        PORT,
        (
            "storage.index.lmdb.environment",
            "_move",
            Replace("cursor.set_key_dup(key, old)", "cursor.set_range_dup(key, old[:8])"),
        ),
    ),
    _bug(
        "first-look-up-left-out",
        "a slice writes only records that the index points at when they are written",
        ORDERS,
        (RECLAIMER, "Reclaimer._still_live", Rewrite("if found == list(before): ...", "return [one]")),
    ),
    _bug(
        "journal-position-of-the-mark-moved-by-a-slice",
        "a slice leaves the journal position of the mark where it is",
        ORDERS,
        (
            RECLAIMER,
            "Reclaimer.move",
            InsertAfter(
                "after = ...",
                "after = replace(after, mark=self._metadata._slot.tables.active.covers_until)",
            ),
        ),
    ),
    _bug(
        "mark-left-behind-by-a-slice",
        "nothing is written down that names a position in a log that the mark does not cover",
        ORDERS,
        (RECLAIMER, "Reclaimer.move", Drop("yield from self._advance_mark(after)")),
    ),
    _bug(
        "copies-of-a-refused-slice-left-in-the-log",
        "nothing follows in a log after copies that no index points at",
        ORDERS,
        (RECLAIMER, "Reclaimer._give_up", Drop("self._logs.abandon()")),
        (RECLAIMER, "Reclaimer._give_up", Rewrite("self._logs.discard()", "pass")),
    ),
    _bug(
        "cache-keeps-moved-locations",
        "locations that moved are forgotten",
        ORDERS,
        (RECLAIMER, "Reclaimer.move", Drop("self._metadata.forget_locations(...)")),
    ),
    _bug(
        "wrong-digest-is-moved",
        "a record is moved only if its digest is right",
        UNITS,
        (
            "storage.gc.victim",
            "Victim._live",
            Drop("if numbers and digester is not None and digester.verifies: ..."),
        ),
    ),
    # ── a removal ────────────────────────────────────────────────────────────────────────────────────
    _bug(
        "unlinked-before-the-index",
        "a log is removed when the index no longer names it",
        ORDERS,
        (
            RECLAIMER,
            "Reclaimer.remove",
            InsertBefore(
                "gone = ...",
                "for log_id in log_ids:\n"
                "    self._directory.remove(filenames.entry_log(log_id))\n"
                "self._directory.sync()",
            ),
        ),
    ),
    _bug(
        "no-lineage",
        "the lineage is durable before a log is removed",
        ORDERS,
        (RECLAIMER, "Reclaimer.remove", Drop("lineage_file.publish(self._directory)")),
    ),
    _bug(
        "last-log-is-collected",
        "the last log stays",
        UNITS,
        (COMPACTOR, "Compactor._why_never_a_victim", Drop("if log_id == state.last_log or ...: ...")),
        (RECLAIMER, "Reclaimer.remove", Drop("assert state.last_log not in log_ids, ...")),
    ),
    _bug(
        "log-removed-by-its-map-alone",
        "a log is removed only after both proofs",
        UNITS,
        (
            COMPACTOR,
            "Compactor._account",
            Rewrite(
                "return (yield from account_for_records(...))", "if log_id < 0:\n    yield 0.0\nreturn None"
            ),
        ),
        (COMPACTOR, "Compactor.remove", Rewrite("live = ...", "live = {}")),
    ),
    _bug(
        "records-not-accounted-for",
        "every record of a removed log is dead for a reason",
        ORDERS,
        (
            COMPACTOR,
            "Compactor._account",
            Rewrite(
                "return (yield from account_for_records(...))", "if log_id < 0:\n    yield 0.0\nreturn None"
            ),
        ),
    ),
    _bug(
        "index-not-passed-over",
        "no location of the index is in a removed log",
        ORDERS,
        (COMPACTOR, "Compactor.remove", Rewrite("live = ...", "live = {}")),
    ),
    _bug(
        "stop-of-a-walk-taken-for-the-end",
        "a walk over a log ends exactly at its end",
        ORDERS,
        (WALK, "walk", Rewrite("if damage is not None: ...", "if damage is not None:\n    return")),
    ),
    _bug(
        "older-copy-is-enough",
        "a record is dead if the index has a later copy of its entry, and not an earlier one",
        ORDERS,
        (
            PROOF,
            "not_dead",
            Replace("(dead.age(place >> 32), place & 0xFFFF_FFFF) < (dead.age(log_id), position)", "False"),
        ),
    ),
    _bug(
        "gone-forgotten-after-a-failed-unlink",
        "a log stays gone until its unlink is durable",
        UNITS,
        (RECLAIMER, "Reclaimer._unlink", Drop("left.add(log_id)")),
    ),
    _bug(
        "descriptor-dropped-before-the-unlink",
        "the descriptor of a removed log is released for good",
        ORDERS,
        (RECLAIMER, "Reclaimer.remove", Swap("error_of_unlink = ...", "for log_id in log_ids: ...")),
    ),
    _bug(
        "descriptor-closed-under-a-reader",
        "the file of a removed log is closed after the last read in it",
        "tests/storage/entrylog/test_open_logs.py",
        (
            "storage.entrylog.open_logs",
            "OpenEntryLogs.drop",
            Rewrite(
                "self._logs.pop(log_id, None)",
                "if log_id in self._logs:\n    self._logs.pop(log_id).file.close()",
            ),
        ),
    ),
    _bug(
        "no-second-look-up",
        "a reader that does not find a log asks the index again",
        ORDERS,
        ("storage.read.points", "PointReader._settled", Replace("present == place", "True")),
    ),
    # ── tombstones ───────────────────────────────────────────────────────────────────────────────────
    _bug(
        "purged-although-logs-hold-records",
        "a tombstone stays while a log has records that it kills",
        ORDERS,
        (
            TOMBSTONES,
            "_reaches",
            Rewrite("return bound.offset > 0 and age(log_id) <= age(bound.log_id)", "return False"),
        ),
    ),
    _bug(
        "purged-although-journals-hold-records",
        "a tombstone stays while a journal has records that it kills",
        ORDERS,
        (TOMBSTONES, "purgeable", Rewrite("is_in_no_journal = ...", "is_in_no_journal = True")),
    ),
    _bug(
        "purged-from-the-index-first",
        "a purged tombstone leaves the rows durably before it leaves the index",
        ORDERS,
        (
            "storage.ledgers.metadata",
            "LedgerMetadata.purge",
            Swap("self._rows.rewrite_without(purged)", "after = forget_in_index(purged)"),
        ),
        # An opening would also repair what this breaks.
        ("recovery.opening.reconcile", "_merge_metadata", Rewrite("later = ...", "later = []")),
    ),
    _bug(
        "unproven-map-is-believed",
        "a ledgers map proves that a ledger is not in a log only with its checksum",
        ORDERS,
        (
            TOMBSTONES,
            "LedgersInLogs.of",
            Replace(
                "EntryLogReader(file, log_id, EntryVerifier()).proven_map()",
                "EntryLogReader(file, log_id, EntryVerifier()).ledgers_map()",
            ),
        ),
    ),
    _bug(
        "largest-change-is-purged",
        "the numbers of changes continue from the largest, whose row stays",
        ORDERS,
        (
            "storage.ledgers.metadata",
            "LedgerMetadata._may_be_purged",
            Replace("change < table.highest_change", "True"),
        ),
    ),
)
