"""The laboratory with our own store, its workloads and its oracles."""

from __future__ import annotations

from recovery.crashlab import CrashLab
from recovery.crashlab.judge.oracles import (
    Atomic,
    ContinueAfterRecovery,
    Durable,
    FencedStays,
    FsckClean,
    Idempotent,
    LastSyncUnwitnessed,
    MonotonicLAC,
    NoFabrication,
    NoHang,
    NoResurrection,
    OpenSucceedsOrNamed,
    PrefixPerStream,
)
from recovery.proving.file_kinds import IGNORED, KINDS, fields
from recovery.proving.observation import go_on, recover
from recovery.proving.verifier import verify
from recovery.proving.workloads import WORKLOADS
from storage.errors import StoreError

ORACLES = (
    Durable(),
    NoFabrication(),
    NoResurrection(),
    Atomic(),
    FencedStays(),
    MonotonicLAC(),
    # Adds of one ledger follow one another in the journal, deferred ones too, so a crash can cut only an end.
    PrefixPerStream(),
)

RULES = (
    Idempotent(),
    ContinueAfterRecovery(go_on),
    FsckClean(verify),
    OpenSucceedsOrNamed(named=(StoreError,)),
    NoHang(),
    # Each group proves the groups before it, but nothing proves the last group yet.
    LastSyncUnwitnessed("journal"),
)


def ledgerstore_lab(seed: int = 1, profile: str = "posix-strict") -> CrashLab:
    """Return the laboratory for our store, with all its workloads and all its promises."""
    return CrashLab(
        WORKLOADS,
        recover,
        (*ORACLES, *RULES),
        profile=profile,
        seed=seed,
        ignore=IGNORED,
        kinds=KINDS,
        fields=fields,
        name="ledgerstore",
    )
