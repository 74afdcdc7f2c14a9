"""The catalogue: every kind of finding by its stable id, with its meaning, cause and remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.audit.findings.finding import Finding, Severity

if TYPE_CHECKING:
    from typing import Any

ERROR, WARNING, INFORMATION = Severity.ERROR, Severity.WARNING, Severity.INFORMATION


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding. `counts` names what the `count` of a finding counts."""

    id: str
    title: str
    severity: Severity
    cause: str
    remedy: str
    counts: str = "entries"

    def at(self, **where: Any) -> Finding:
        """Make a finding of this kind."""
        return Finding(kind=self.id, **{"severity": self.severity, **where})


_ALL = (
    # ── journals ─────────────────────────────────────────────────────────────────────────────────────
    Kind(
        "JRN-001",
        "torn tail",
        INFORMATION,
        "A crash cut a write short before it was acknowledged. An acknowledged last group that was damaged "
        "before anything was written after it looks the same.",
        "None. Opening the store keeps the complete records whose checksums hold, and saves the rest under "
        "quarantine/.",
        "bytes",
    ),
    Kind(
        "JRN-002",
        "journal header",
        ERROR,
        "The first bytes of a journal are not a header that any version writes.",
        "Restore the file from a copy. Without its header nothing in it can be trusted, and opening refuses.",
        "files",
    ),
    Kind(
        "JRN-003",
        "damage in acknowledged data",
        ERROR,
        "Bytes of a journal after the mark that were known to be durable are damaged or lost.",
        "Restore the file from a copy or another replica. Opening refuses, because it would lose entries "
        "silently.",
        "records",
    ),
    Kind(
        "JRN-004",
        "digest of a journaled record",
        ERROR,
        "A record in a journal after the mark does not carry the digest of its bytes.",
        "Restore the file from a copy, or the entry from another replica.",
        "records",
    ),
    Kind(
        "JRN-005",
        "damage before the mark",
        WARNING,
        "A journal is damaged before the mark, where nothing is replayed any more: everything there is in "
        "entry logs and index.",
        "None is needed. The disk has damaged a file: check its health, and the other files on it.",
        "records",
    ),
    Kind(
        "JRN-006",
        "a journaled entry is nowhere else",
        ERROR,
        "An entry is in a journal before the mark, but neither in the index nor in a later journal.",
        "Rebuild the index (`ledgerstore rebuild-index`): if a log has the entry it will be found.",
    ),
    # ── the mark ─────────────────────────────────────────────────────────────────────────────────────
    Kind(
        "MRK-001",
        "mark short or damaged",
        ERROR,
        "lastMark cannot be read, is missing, or its checksum does not match.",
        "Open the store: a sound index replaces a mark that is damaged or missing. If opening refuses, "
        "restore lastMark from a backup of the same moment.",
        "files",
    ),
    Kind(
        "MRK-002",
        "a journal is missing",
        ERROR,
        "The mark, its trailer or another journal names a journal that does not exist.",
        "Restore the file: what was acknowledged in it is stored nowhere else.",
        "files",
    ),
    Kind(
        "MRK-003",
        "the mark is behind the index",
        INFORMATION,
        "A checkpoint was interrupted between its last two steps, or an older lastMark was restored.",
        "None: opening takes the mark from the index.",
        "checkpoints",
    ),
    Kind(
        "MRK-004",
        "the mark is not at a record",
        ERROR,
        "The position from which a journal is to be replayed is inside a record, or after the end of its "
        "data.",
        "Restore lastMark. Entries between the true position and this one would not be replayed.",
        "files",
    ),
    # ── entry logs ───────────────────────────────────────────────────────────────────────────────────
    Kind(
        "ELG-001",
        "entry log header",
        ERROR,
        "The first bytes of an entry log are not a header that any version writes.",
        "None for reading: entries are found by their places. Keep a copy of the file.",
        "files",
    ),
    Kind(
        "ELG-002",
        "ledgers map",
        WARNING,
        "The map at the end of a sealed log, or its position in the header, does not describe what the log "
        "holds.",
        "None for reading. A bookie's garbage collector uses the map, and would keep or drop the wrong log.",
        "ledgers",
    ),
    Kind(
        "ELG-003",
        "digest of an entry",
        ERROR,
        "An entry in a log does not carry the digest of its bytes.",
        "Restore it from another replica, or the file from a copy.",
    ),
    Kind(
        "ELG-004",
        "hole in an entry log",
        ERROR,
        "Bytes in the acknowledged part of a log that are not a record.",
        "Restore them from another replica, or the file from a copy.",
        "bytes",
    ),
    Kind(
        "ELG-005",
        "entry log missing or short",
        ERROR,
        "A log that held acknowledged entries is missing, or ends before the end of what was written to it.",
        "Restore the file from a copy, or its entries from other replicas.",
        "files",
    ),
    Kind(
        "ELG-006",
        "unfinished end of an entry log",
        INFORMATION,
        "The bytes after the last checkpoint, or at the end of a bookie's log in use, are incomplete.",
        "None: everything acknowledged there is in a journal.",
        "bytes",
    ),
    Kind(
        "ELG-007",
        "entries in damaged places",
        ERROR,
        "The index points at these entries, but the log is damaged there or has lost its end: they cannot "
        "be read.",
        "Restore them from another replica, or the file from a copy.",
    ),
    Kind(
        "ELG-008",
        "lineage of the entry logs",
        WARNING,
        "The file that names the remaining entry logs after others were removed is damaged, missing or "
        "wrong. It is only needed if the index is lost.",
        "Open the store: a sound index writes it again. Without an index everything in the logs is read, and "
        "entries that are not found are unknown instead of missing.",
        "files",
    ),
    # ── the index ────────────────────────────────────────────────────────────────────────────────────
    Kind(
        "IDX-001",
        "index points nowhere",
        ERROR,
        "The index has a place for entries in a log that does not exist, or after the end of its data.",
        "Restore the log first if it is missing, or the entries from other replicas: `ledgerstore "
        "rebuild-index` refuses without it, and is not for a bookie's index. If the logs of a store are "
        "whole, rebuild the index.",
        "index rows",
    ),
    Kind(
        "IDX-002",
        "index points at something else",
        ERROR,
        "At the place that the index has for an entry there is another entry, or no record begins there.",
        "Rebuild the index: `ledgerstore rebuild-index`.",
        "index rows",
    ),
    Kind(
        "IDX-003",
        "entry without a place in the index",
        ERROR,
        "A log holds an entry of a ledger that is not deleted, but the index has no place for it.",
        "Rebuild the index: `ledgerstore rebuild-index`.",
    ),
    Kind(
        "IDX-004",
        "damaged index",
        ERROR,
        "Pages of the index are not as they were written, or its files are missing.",
        "Open the store: it rebuilds the index from entry logs and ledger metadata.",
        "files",
    ),
    Kind(
        "IDX-005",
        "two places for one entry",
        ERROR,
        "The index has more than one place for an entry.",
        "Rebuild the index: `ledgerstore rebuild-index`.",
        "index rows",
    ),
    Kind(
        "IDX-006",
        "index points at an older copy",
        WARNING,
        "An entry was written twice, and the index has the place of the earlier copy.",
        "Rebuild the index: `ledgerstore rebuild-index`.",
        "index rows",
    ),
    Kind(
        "IDX-007",
        "index points at truncated entries",
        WARNING,
        "The index has places of entries before the truncation of their ledger. No reader sees them, but "
        "the logs that hold them are never removed.",
        "Rebuild the index: `ledgerstore rebuild-index`.",
        "index rows",
    ),
    # ── ledgers ──────────────────────────────────────────────────────────────────────────────────────
    Kind(
        "LGR-001",
        "gap in a ledger",
        INFORMATION,
        "Entries between the first and the last of a ledger are missing here. This is normal for a bookie "
        "that shares a ledger with others, and for a writer that chose the ids.",
        "If this store should have all of them, give the ledger's ensembles (`audit --replicas`).",
    ),
    Kind(
        "LGR-002",
        "ledger rows",
        ERROR,
        "ledgers.rows, which holds the ledgers' metadata, is damaged or missing.",
        "Restore the file from a copy. Opening refuses, because the file holds fences, keys and deletes.",
        "files",
    ),
    Kind(
        "LGR-003",
        "a deleted ledger may be back",
        WARNING,
        "A ledger was deleted here before a bookie ran in this directory, and its entries have appeared "
        "again.",
        "Delete it once more if it should be gone.",
        "ledgers",
    ),
    Kind(
        "LGR-004",
        "last add confirmed",
        WARNING,
        "The last add confirmed of these entries is the entry itself or a later one.",
        "None: the entries are whole. Their writer made the mistake.",
    ),
    Kind(
        "LGR-005",
        "entries that nothing verifies",
        INFORMATION,
        "The ledger has no digest, or one that only its password verifies, so that its entries may be good "
        "or bad.",
        "For MAC digests give the password (`--password LEDGER=TEXT`).",
    ),
    Kind(
        "LGR-006",
        "a ledger's row contradicts the journals",
        ERROR,
        "A journal before the mark fences a ledger, or has a master key or a last add confirmed that its "
        "row does not have.",
        "Fence the ledger again. Keep the files and report the problem, because a checkpoint should have "
        "written it down.",
        "records",
    ),
    Kind(
        "LGR-007",
        "dead bytes of an entry log",
        INFORMATION,
        "Records in a log that no reader gets: entries of a deleted ledger, truncated entries, or earlier "
        "copies of entries that were written again. A collection "
        "frees them: the store removes a log without live entries, and moves live entries out of one "
        "that is mostly dead.",
        "None. `ledgerstore gc` shows what each log holds and why it is still there; `ledgerstore gc --run` "
        "or Store.collect gives the space back at once.",
        "bytes",
    ),
    Kind(
        "LGR-008",
        "entries in several logs",
        INFORMATION,
        "Entries occur more than once in a bookie's logs, because a replay or a compaction was interrupted,"
        " they were added again, or a log was copied under another id. The last copy counts.",
        "None.",
    ),
    # ── the directory ────────────────────────────────────────────────────────────────────────────────
    Kind(
        "CKE-001",
        "cookie",
        ERROR,
        "A directory's VERSION file, which names its store, is missing or damaged, or belongs to another "
        "store.",
        "Restore it from a copy. Is the right disk mounted?",
        "files",
    ),
    Kind(
        "DIR-001",
        "unknown file",
        INFORMATION,
        "A file that neither a store nor a bookie writes.",
        "None: it is never touched.",
        "files",
    ),
    Kind(
        "DIR-002",
        "leftover",
        INFORMATION,
        "A leftover of an interrupted process: a draft, or an entry log that no checkpoint completed.",
        "None: opening the store removes its own leftovers.",
        "files",
    ),
    Kind(
        "DIR-003",
        "written by a newer version",
        ERROR,
        "A file that only a newer version of this package, or of BookKeeper, can read.",
        "Use that version.",
        "files",
    ),
    Kind(
        "DIR-004",
        "cannot be read",
        ERROR,
        "The system refuses to read a file or a part of it.",
        "Check the disk and the permissions. What the file holds was not verified.",
        "files",
    ),
    Kind(
        "DIR-005",
        "store not audited",
        ERROR,
        "A path of an audit is no store, or the directories of the store cannot be read.",
        "Check the path, and that its disk is mounted. Nothing of this store was verified.",
        "files",
    ),
    # ── replicas ─────────────────────────────────────────────────────────────────────────────────────
    Kind(
        "RPL-001",
        "too few copies",
        ERROR,
        "Fewer stores hold these entries than the ledger's write quorum, or not the stores that should.",
        "Bring back the store that should hold them, or copy them from another.",
    ),
    Kind(
        "RPL-002",
        "copies differ",
        ERROR,
        "Two stores hold different bytes for the same entry, each with a digest that matches its own.",
        "Find out which two writers wrote them. The last add confirmed shows which copy a reader may have "
        "seen.",
    ),
    Kind(
        "RPL-003",
        "a copy too many",
        INFORMATION,
        "A store holds entries that the ensemble does not require on it.",
        "None: an earlier ensemble or a repair has left them.",
    ),
)

KINDS = {kind.id: kind for kind in _ALL}
