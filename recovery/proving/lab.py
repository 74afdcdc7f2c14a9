"""The laboratory around our own store."""

from __future__ import annotations

from recovery.crashlab import CrashLab
from recovery.crashlab.oracles import (
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
from recovery.proving.kinds import IGNORED, KINDS, fields
from recovery.proving.showing import go_on, recover
from recovery.proving.verifying import verify
from recovery.proving.workloads import WORKLOADS
from storage.errors import StoreError

ORACLES = (
    Durable(),
    NoFabrication(),
    NoResurrection(),
    Atomic(),
    FencedStays(),
    MonotonicLAC(),
    # Adds of one ledger follow one another in the journal, deferred ones too: what is cut is an end.
    PrefixPerStream(),
)

RULES = (
    Idempotent(),
    ContinueAfterRecovery(go_on),
    FsckClean(verify),
    OpenSucceedsOrNamed(named=(StoreError,)),
    NoHang(),
    # Each group vouches for those before it; nothing vouches for the last one yet.
    LastSyncUnwitnessed("journal"),
)


def ledgerstore_lab(seed: int = 1, profile: str = "posix-strict") -> CrashLab:
    """Our store under every workload of its own, with all that it promises as what must hold."""
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
