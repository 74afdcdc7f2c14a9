"""Planted bugs of full disks. `planted_bugs` says what a planted bug is, and has them in its list."""

from __future__ import annotations

from code_edits import Drop, Edit, EditAddress, InsertAfter, Replace, Rewrite

GUARD = "storage.capacity.guard"
RESERVE = "storage.capacity.reserve"
OPENING = "recovery.opening.open_store"
ROWS = "storage.ledgers.metadata"
FULL = "tests/storage/capacity/test_full_disk.py"
FILE = "tests/storage/capacity/test_reserve.py"
INDEX = "tests/storage/index/lmdb/test_environment_space.py"


def _bug(
    name: str, rule: str, test: str, *changes: tuple[str, str, Edit]
) -> tuple[str, str, tuple[EditAddress, ...], tuple[str, ...]]:
    return name, rule, tuple(EditAddress(*change) for change in changes), (test,)


SPACE = (
    # ── the file ─────────────────────────────────────────────────────────────────────────────────────
    _bug(
        "reserve-only-allocated",
        "the zeros of the reserve are written",
        FILE,
        (
            RESERVE,
            "Reserve.fill",
            Rewrite(
                "self._draft.zero_fill(self._filled, part)",
                "self._draft.write(self._filled + part - 1, (b'\\0',))",
            ),
        ),
    ),
    _bug(
        "reserve-not-synced",
        "the zeros of the reserve are durable before it has its name",
        FILE,
        (RESERVE, "Reserve.fill", Drop("self._draft.sync()")),
    ),
    _bug(
        "reserve-given-up-without-a-sync",
        "the removal of the reserve is durable before its space is used",
        FILE,
        (RESERVE, "Reserve.give_up", Drop("self._directory.sync()")),
    ),
    _bug(
        "draft-of-the-reserve-synced-again",
        "a file whose sync has failed is not synced again",
        FILE,
        (RESERVE, "Reserve.fill", Drop("self._drop_draft()")),
    ),
    _bug(
        "draft-of-the-reserve-kept-on-a-full-disk",
        "a reserve that is being filled is given up too",
        FILE,
        (RESERVE, "Reserve.give_up", Rewrite("had_draft = self._drop_draft()", "had_draft = False")),
    ),
    # ── who may have it ──────────────────────────────────────────────────────────────────────────────
    _bug(
        "adds-continue-without-the-reserve",
        "adds are refused while the reserve is gone",
        FULL,
        (GUARD, "SpaceGuard._make_room", Drop("self._gave_up = True")),
    ),
    _bug(
        "adds-may-have-the-reserve",
        "only work that frees space or finishes something may have the reserve",
        FULL,
        ("storage.commit.committer", "Committer._rolled", Replace("Need.ADDS", "Need.FINISHING")),
    ),
    _bug(
        "recoveries-add-without-the-reserve",
        "the adds of recoveries are refused too while the reserve is gone",
        FULL,
        (
            "storage.runtime.store_state",
            "StoreState.check_space",
            Replace(
                "isinstance(refusal, NoReserve) or (refusal is not None and purpose is Purpose.WRITING)",
                "refusal is not None and purpose is Purpose.WRITING",
            ),
        ),
    ),
    _bug(
        "backups-kept-on-a-full-disk",
        "journal backups go before anything is refused",
        FULL,
        (GUARD, "SpaceGuard._make_room", Drop("if self._free_backups(): ...")),
    ),
    _bug(
        "fence-refused-on-a-full-disk",
        "a fence has the reserve",
        FULL,
        ("storage.commit.ledger_control", "LedgerControl._commit", Replace("Need.FINISHING", "Need.ADDS")),
    ),
    _bug(
        "delete-refused-on-a-full-disk",
        "a delete has the reserve",
        FULL,
        (ROWS, "LedgerMetadata._append_tombstones", Replace("Need.FINISHING", "Need.ADDS")),
    ),
    _bug(
        "checkpoint-without-the-reserve",
        "a checkpoint has the reserve",
        FULL,
        (
            "storage.checkpoint.checkpointer",
            "Checkpointer._pause_after",
            Drop("if self._trial.may_repeat(error): ..."),
        ),
    ),
    _bug(
        "collection-without-the-reserve",
        "a collection has the reserve",
        FULL,
        ("storage.gc.compactor", "Compactor._begin", Replace("Need.FINISHING", "Need.ADDS")),
    ),
    _bug(
        "opening-without-the-reserve",
        "an opening has the reserve",
        FULL,
        (
            OPENING,
            "Opening._ways_to_free_space",
            Replace("(filenames.RESERVE, filenames.OPENING_RESERVE)", "()"),
        ),
    ),
    _bug(
        "opening-without-its-own-reserve",
        "an opening has a part of the reserve that a running store does not give up",
        FULL,
        (
            OPENING,
            "Opening._ways_to_free_space",
            Replace("(filenames.RESERVE, filenames.OPENING_RESERVE)", "(filenames.RESERVE,)"),
        ),
    ),
    _bug(
        "repeated-after-any-error",
        "only an error of space is repeated with the reserve",
        FULL,
        (GUARD, "SpaceGuard.may_repeat", Drop("if error.errno not in NO_SPACE: ...")),
    ),
    # ── how it ends ──────────────────────────────────────────────────────────────────────────────────
    _bug(
        "reserve-filled-by-an-add",
        "the reserve is filled by a worker",
        FULL,
        (
            "storage.commit.committer",
            "Committer._rolled",
            InsertAfter("self._space.check()", "while self._space.step() == 0: pass"),
        ),
    ),
    _bug(
        "reserve-filled-without-room-for-it-twice",
        "the reserve is filled again when there is room for it twice",
        FULL,
        (
            GUARD,
            "SpaceGuard.step",
            Replace("2 * sum((size for _, size in missing))", "sum((size for _, size in missing))"),
        ),
    ),
    _bug(
        "adds-resume-at-the-limit",
        "adds resume at twice the limit",
        FULL,
        (GUARD, "SpaceGuard._decide", Replace("limits.resume(space)", "limits.least(space)")),
    ),
    _bug(
        "adds-never-resume",
        "the space is read each second while adds are refused",
        FULL,
        (GUARD, "SpaceGuard.step", Replace("POLL_S", "None")),
    ),
    _bug(
        "accepting-opens-a-store-that-has-failed",
        "a store that has failed accepts no adds, whatever the space is",
        "tests/storage/capacity/test_refusal.py",
        ("storage.runtime.store_state", "StoreState.refuse_adds", Replace("self.has_ended", "False")),
    ),
    # ── LMDB ─────────────────────────────────────────────────────────────────────────────────────────
    _bug(
        "table-of-readers-with-holes",
        "no write by a memory map needs a new block",
        INDEX,
        ("storage.index.lmdb.environment", "_allocate_readers", Drop("allocate(...)")),
    ),
)
