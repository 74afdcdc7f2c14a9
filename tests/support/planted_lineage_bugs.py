"""Planted bugs of openings and views after logs were removed. `planted_bugs` has them in its list."""

from __future__ import annotations

from code_edits import Drop, Edit, EditAddress, Replace, Rewrite

CHAIN = "recovery.rebuild.entry_log_chain"
BUILDER = "recovery.rebuild.index_builder"
ORPHANS = "recovery.directory.orphans"
RECONCILE = "recovery.opening.reconcile"
REPAIR = "recovery.opening.repair_lineage"
IMPORT = "recovery.bookkeeper.import_directory"
VIEW = "recovery.view.open_view"

CHAIN_TESTS = "tests/recovery/rebuild/test_chain_to_lineage.py"
REBUILD_TESTS = "tests/recovery/rebuild/test_rebuild.py"
RECONCILE_TESTS = "tests/recovery/opening/test_reconcile.py"
CRASH_TESTS = "tests/recovery/test_reclamation_crashes.py"
VIEW_TESTS = "tests/recovery/view/test_view_beside_collection.py"


def _bug(
    name: str, rule: str, test: str, module: str, function: str, edit: Edit
) -> tuple[str, str, tuple[EditAddress, ...], tuple[str, ...]]:
    return name, rule, (EditAddress(module, function, edit),), (test,)


LINEAGE = (
    # ── the index made again ─────────────────────────────────────────────────────────────────────────
    _bug(
        "bound-in-a-removed-log-kills-nothing",
        "a bound in a removed log is where the id of the log belongs in the order",
        REBUILD_TESTS,
        BUILDER,
        "tombstone_positions",
        Replace("log.offset == 0", "log.offset == 0 or log.log_id not in is_there"),
    ),
    _bug(
        "mark-before-the-lineage-accepted",
        "a mark that is older than the lineage is refused",
        CHAIN_TESTS,
        CHAIN,
        "follow_chain",
        Replace("found.generation > trailer.generation", "False"),
    ),
    _bug(
        "end-of-the-lineage-wins",
        "the log in which writing went on counts up to the larger of the two ends",
        CHAIN_TESTS,
        CHAIN,
        "_chain_to_lineage",
        Replace("max(walk.before.offset, known.kept[rank].offset)", "known.kept[rank].offset"),
    ),
    _bug(
        "noted-ends-of-kept-logs-not-asked",
        "the end that the header of the next log notes counts if it is larger than that of the lineage",
        CHAIN_TESTS,
        CHAIN,
        "_kept_logs",
        Replace("max(one.offset, noted.get(one.log_id, 0))", "one.offset"),
    ),
    _bug(
        "gone-forgotten-by-a-rebuild",
        "a rebuilt index knows which removed logs a power cut may bring back",
        CHAIN_TESTS,
        "recovery.rebuild.rebuild",
        "rebuild",
        Replace("chain.gone", "()"),
    ),
    # ── openings ─────────────────────────────────────────────────────────────────────────────────────
    _bug(
        "removed-bookie-log-taken-for-a-run",
        "a bookie's log that was removed is not taken for a run of a bookie",
        CRASH_TESTS,
        ORPHANS,
        "has_foreign_logs",
        Replace("{*state.log_ends, *state.gone}", "{*state.log_ends}"),
    ),
    _bug(
        "removed-bookie-log-left-there",
        "a log that is gone is removed by an opening, whether it is ours or a bookie's",
        CRASH_TESTS,
        ORPHANS,
        "remove_orphans",
        Replace("parsed.number in state.gone", "False"),
    ),
    _bug(
        "removal-by-an-opening-not-synced",
        "a removed log does not come back after the opening that removed it",
        RECONCILE_TESTS,
        ORPHANS,
        "remove_orphans",
        Drop("if state.gone: ..."),
    ),
    _bug(
        "stale-tombstone-removes-everything",
        "a bounded tombstone that the index does not have removes no location after its bound",
        RECONCILE_TESTS,
        RECONCILE,
        "_merge_metadata",
        Replace("list(_later_entries(index, deleted))", "[]"),
    ),
    _bug(
        "wrong-lineage-left",
        "a lineage that does not belong to the index is written again",
        RECONCILE_TESTS,
        REPAIR,
        "_contradicts",
        Rewrite("return is_later or ...", "return False"),
    ),
    _bug(
        "import-keeps-the-old-lineage",
        "an import writes a lineage of all logs that are there",
        "tests/recovery/bookkeeper/test_import_directory.py",
        IMPORT,
        "_DirectoryImport.run",
        Drop("lineage.store(self._directory, self._lineage(state), self._store_id)"),
    ),
    # ── readers in other processes ───────────────────────────────────────────────────────────────────
    _bug(
        "view-takes-a-removed-log-for-lost",
        "a view asks the index again before it reports a log as missing",
        VIEW_TESTS,
        VIEW,
        "ViewReader._lost_logs",
        Replace("state.log_ends.keys() == before.log_ends.keys()", "True"),
    ),
    _bug(
        "view-hides-by-a-purged-tombstone",
        "a tombstone that was purged hides no ledger that was made again",
        VIEW_TESTS,
        VIEW,
        "ViewReader._read_ours",
        Replace("newest_rows(filed, found.rows)", "newest_rows(newest_rows(filed, base.rows), found.rows)"),
    ),
    _bug(
        "view-keeps-removed-logs-open",
        "a refreshed view releases the space of removed logs",
        VIEW_TESTS,
        VIEW,
        "ViewReader._update_after_checkpoint",
        Drop("snapshot.open_logs.keep_only(state.log_ends)"),
    ),
)
