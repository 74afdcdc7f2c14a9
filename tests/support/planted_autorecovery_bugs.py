"""Planted bugs of auto-recovery as it runs: its coroutines, its machines, and its nodes in the metadata.

The cluster laboratory finds each with the schedules of auto-recovery. Some are what Apache BookKeeper does:
their names begin with N and the number of the defect, as in docs/conformance.md, or with the number of an
issue.
"""

from __future__ import annotations

from code_edits import Drop, Edit, EditAddress, Replace, Rewrite
from planted_cluster_bugs import PlantedClusterBug

from recovery.clusterlab.autorecovery import AutoRecoverySchedule

DELETED = "storage.cluster.bookie.deleted_ledgers"
OVER_REPLICATED = "storage.cluster.bookie.over_replicated"
PATHS = "storage.cluster.metadata.paths"
CHECK = "recovery.autorecovery.check"
COPYING = "recovery.autorecovery.copying"
DECOMMISSION = "recovery.autorecovery.decommission"
ELECTION = "storage.cluster.metadata.election"
FRAGMENTS = "recovery.autorecovery.fragments"
GROWING = "recovery.autorecovery.growing"
MARKS = "storage.cluster.metadata.underreplication"
REPAIR = "recovery.autorecovery.repair"
UPDATE = "storage.cluster.metadata.update"
SERVICE = "recovery.autorecovery.service"


def _bug(name: str, rule: str, module: str, function: str, edit: Edit, *invariants: str) -> PlantedClusterBug:
    return PlantedClusterBug(
        name,
        rule,
        (EditAddress(module, function, edit),),
        frozenset(invariants),
        kind=AutoRecoverySchedule,
    )


def _bugs(name: str, rule: str, changes: tuple[EditAddress, ...], *invariants: str) -> PlantedClusterBug:
    """Return a bug of several rules that prevent the same harm, each by itself."""
    return PlantedClusterBug(name, rule, changes, frozenset(invariants), kind=AutoRecoverySchedule)


AUTORECOVERY_BUGS = (
    # ── the election ─────────────────────────────────────────────────────────────────────────────────
    _bug(
        "election-after-a-vote-that-was-left",
        "a candidate takes the vote that an earlier one of its session has left",
        ELECTION,
        "Candidate._own_vote",
        Rewrite("path = await self._find_vote()", "path = None"),
        "O6",
    ),
    # ── the service ──────────────────────────────────────────────────────────────────────────────────
    _bug(
        "service-does-not-stop",
        "a service that is stopped in the moment its session ends stops",
        SERVICE,
        "_error_of",
        Rewrite(
            "work = asyncio.get_running_loop().create_task(...)",
            "try:\n    await run()\nexcept Exception as error:\n    return error\nreturn None",
        ),
        "O8",
    ),
    # ── marks and locks ──────────────────────────────────────────────────────────────────────────────
    _bug(
        "n14-a-lock-is-deleted-by-its-path",
        "a lock is deleted only by the session that holds it",
        UPDATE,
        "delete_own",
        Replace(
            "isinstance(stat, Gone) or stat.ephemeral_owner != znodes.session_id", "isinstance(stat, Gone)"
        ),
        "O10",
    ),
    _bug(
        "lock-at-a-server-that-lags",
        "a lock whose answer was lost is looked for at a server that has caught up",
        MARKS,
        "lock_ledger",
        Drop("await znodes.sync(path)"),
        "O6",
    ),
    _bug(
        "mark-deleted-without-its-version",
        "a mark that was renewed since the lock was taken stays",
        MARKS,
        "_delete_mark",
        Replace("znodes.delete(path, mark.version)", "znodes.delete(path)"),
        "O10",
    ),
    _bug(
        "mark-deleted-without-the-lock",
        "only the holder of the lock deletes a mark",
        MARKS,
        "take_lock",
        Rewrite(
            "if lock is None: ...", "if lock is None:\n    lock = LedgerLock(lock_path(root, ledger_id), 0)"
        ),
        "O10",
    ),
    # ── the repair of a ledger ───────────────────────────────────────────────────────────────────────
    _bug(
        "suspect-is-forgotten-where-the-ledger-grows",
        "a mark stays while a bookie may lack entries where the ledger grows",
        REPAIR,
        "LedgerRepair._conclude",
        Replace("isinstance(outcome, Repaired) and growing is not None", "False"),
        "O6",
    ),
    _bug(
        "end-of-what-grows-is-what-the-suspect-has",
        "a suspect is compared with the last entry of every bookie of the ensemble",
        GROWING,
        "GrowingCheck._note_last",
        Replace(
            "max(self._end, entry.entry_id)", "entry.entry_id if bookie in self._suspects else self._end"
        ),
        "O6",
    ),
    _bug(
        "names-before-copies",
        "the metadata name a bookie only when it has every entry",
        REPAIR,
        "LedgerRepair._next",
        Replace("not self._tasks[-1].fragment.count", "True"),
        "T2",
        "O6",
    ),
    _bug(
        "growing-segment-is-repaired",
        "the last segment of a ledger that is not closed is not touched",
        FRAGMENTS,
        "fixed_segments",
        Replace("metadata.is_closed", "True"),
        *("T2", "T3", "O1", "O5", "O6", "O8"),
    ),
    _bug(
        "copy-without-an-answer",
        "the target has to answer every add with success",
        COPYING,
        "FragmentCopy.answered",
        Drop("self._fail(...)"),
        "T2",
        "O6",
    ),
    _bug(
        "suspects-are-read-in-part",
        "every entry of a suspected bookie is read",
        REPAIR,
        "LedgerRepair._percent",
        Replace("is_suspected or fragment.key in self._in_place", "False"),
        "O6",
    ),
    _bug(
        "silent-bookies-count-as-whole",
        "a bookie that gives no useful answer postpones the repair",
        REPAIR,
        "LedgerRepair._outcome",
        Replace("self._waits_for is not None or again", "False"),
        "O6",
    ),
    _bug(
        "digest-is-not-verified",
        "an entry counts only if its digest is right",
        CHECK,
        "judge",
        Replace("entries.decode(entry_id, data) is None", "False"),
        "O6",
    ),
    _bug(
        "no-check-after-the-repair",
        "a ledger is checked again after it was repaired",
        REPAIR,
        "LedgerRepair._next",
        Rewrite("return [ReadMetadata()]", "return self._end(Repaired())"),
        "O6",
    ),
    # ── decommission ─────────────────────────────────────────────────────────────────────────────────
    _bug(
        "decommission-does-not-wait",
        "the cookie of a bookie goes when no ledger names it",
        DECOMMISSION,
        "wait_until_empty",
        Replace("named <= given_up()", "True"),
        "O6",
    ),
    # ── the collection of bookies ────────────────────────────────────────────────────────────────────
    _bug(
        "copies-of-open-ledgers-are-collected",
        "a copy of a ledger that is not closed stays",
        OVER_REPLICATED,
        "is_over_replicated",
        Replace("metadata.state is ClusterLedgerState.CLOSED", "True"),
        "O7",
    ),
    _bug(
        "older-segments-are-collected",
        "a copy stays while any segment names its bookie",
        OVER_REPLICATED,
        "is_over_replicated",
        Replace("metadata.segments", "metadata.segments[-1:]"),
        *("O7", "T2", "T3", "O6"),
    ),
    _bugs(
        "4668-copies-of-a-repair-are-collected",
        "a ledger that is repaired, or has got copies within the hour, is left alone",
        (
            EditAddress(
                OVER_REPLICATED, "OverReplication.make_pass", Replace("now - since >= GRACE_S", "True")
            ),
            EditAddress(OVER_REPLICATED, "OverReplication._forget_recovered", Drop("for one in ...: ...")),
            EditAddress(
                OVER_REPLICATED,
                "OverReplication._delete",
                Rewrite("if lock is None: ...", "lock = underreplication.LedgerLock('', 0)"),
            ),
            EditAddress(
                OVER_REPLICATED,
                "OverReplication._delete",
                Replace("is_marked or not self._is_over_replicated(path, await znodes.get(path))", "False"),
            ),
        ),
        *("O7", "T2", "T3", "O6"),
    ),
    _bugs(
        "n12-ledgers-are-listed-at-a-server-that-lags",
        "a ledger is deleted only if two synced lists and a synced look at it say that it is gone",
        (
            EditAddress(PATHS, "list_ledgers", Drop("await znodes.sync(paths.root)")),
            EditAddress(DELETED, "judge", Replace("absent & suspected", "absent")),
            EditAddress(DELETED, "_is_gone", Drop("await znodes.sync(path)")),
        ),
        *("O7", "T2", "T3"),
    ),
    _bug(
        "copies-are-never-collected",
        "a copy that no segment names is deleted after an hour",
        OVER_REPLICATED,
        "is_over_replicated",
        Replace("is_closed and all(...)", "False"),
        "O7",
    ),
)
