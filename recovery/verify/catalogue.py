"""Every kind of finding by its stable id: what it means, what causes it, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.verify.finding import Finding, Severity

if TYPE_CHECKING:
    from typing import Any

ERROR, WARNING, INFORMATION = Severity.ERROR, Severity.WARNING, Severity.INFORMATION


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding. `counts` says what a finding's `count` is a number of."""

    id: str
    title: str
    severity: Severity
    cause: str
    remedy: str
    counts: str = "entries"

    def at(self, **where: Any) -> Finding:
        """A finding of this kind."""
        return Finding(kind=self.id, **{"severity": self.severity, **where})


_ALL = (
    # ── journals ─────────────────────────────────────────────────────────────────────────────────────
    Kind(
        "JRN-001",
        "torn tail",
        INFORMATION,
        "A write was cut short by a crash: nobody was answered for what stands there. If it had been "
        "acknowledged, and its only copy was damaged before anything followed it, it would look the same.",
        "None. Opening the store keeps what frames and verifies, and saves the rest under quarantine/.",
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
        "Bytes of a journal, from the mark on, that were known to be durable are damaged or gone.",
        "Restore the file from a copy or another replica; opening refuses rather than lose entries silently.",
        "records",
    ),
    Kind(
        "JRN-004",
        "digest of a journaled record",
        ERROR,
        "A record in a journal, from the mark on, does not carry the digest of its bytes.",
        "Restore the file from a copy, or the entry from another replica.",
        "records",
    ),
    Kind(
        "JRN-005",
        "damage before the mark",
        WARNING,
        "A journal is damaged where nothing is replayed any more: all of it is in entry logs and index.",
        "None is needed. The disk has damaged a file: look at its health, and at the other files on it.",
        "records",
    ),
    Kind(
        "JRN-006",
        "a journaled entry is nowhere else",
        ERROR,
        "An entry stands in a journal before the mark, and neither the index nor a journal behind it has it.",
        "Make the index again (`ledgerstore rebuild-index`): if a log has the entry it will be found.",
    ),
    # ── the mark ─────────────────────────────────────────────────────────────────────────────────────
    Kind(
        "MRK-001",
        "mark short or damaged",
        ERROR,
        "lastMark cannot be read, or its checksum does not match.",
        "Open the store: where the index is sound it stands in for the mark. Else restore lastMark.",
        "files",
    ),
    Kind(
        "MRK-002",
        "a journal is missing",
        ERROR,
        "The mark, its trailer or another journal names a journal that is not there.",
        "Bring the file back: what was acknowledged in it is in no other place.",
        "files",
    ),
    Kind(
        "MRK-003",
        "the mark is behind the index",
        INFORMATION,
        "A checkpoint was interrupted between its last two steps, or an older lastMark was brought back.",
        "None: opening takes the mark from the index.",
        "checkpoints",
    ),
    Kind(
        "MRK-004",
        "the mark is not at a record",
        ERROR,
        "The place from which a journal is to be replayed is inside a record, or behind the end of its data.",
        "Restore lastMark. Entries between the true place and this one would not be replayed.",
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
        "The map at the end of a sealed log, or the header's place for it, does not say what the log holds.",
        "None for reading. A bookie's garbage collector counts by it, and would keep or drop the wrong log.",
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
        "Bytes in the acknowledged part of a log that are no record.",
        "Restore them from another replica, or the file from a copy.",
        "bytes",
    ),
    Kind(
        "ELG-005",
        "entry log missing or short",
        ERROR,
        "A log that held acknowledged entries is gone, or ends before what was written to it.",
        "Bring the file back from a copy, or its entries from other replicas.",
        "files",
    ),
    Kind(
        "ELG-006",
        "unfinished end of an entry log",
        INFORMATION,
        "Behind the last checkpoint, or at the end of a bookie's log in use, stands what was not completed.",
        "None: everything acknowledged there is in a journal.",
        "bytes",
    ),
    Kind(
        "ELG-007",
        "entries in damaged places",
        ERROR,
        "The index has these entries where the log is damaged, or has lost its end: they cannot be read.",
        "Restore them from another replica, or the file from a copy.",
    ),
    # ── the index ────────────────────────────────────────────────────────────────────────────────────
    Kind(
        "IDX-001",
        "index points nowhere",
        ERROR,
        "The index has a place for entries in a log that is not there, or behind the end of what it holds.",
        "Make the index again: `ledgerstore rebuild-index`.",
        "index rows",
    ),
    Kind(
        "IDX-002",
        "index points at something else",
        ERROR,
        "At the place that the index has for an entry stands another one, or no record begins there.",
        "Make the index again: `ledgerstore rebuild-index`.",
        "index rows",
    ),
    Kind(
        "IDX-003",
        "entry without a place in the index",
        ERROR,
        "A log holds an entry of a living ledger, and the index has no place for it.",
        "Make the index again: `ledgerstore rebuild-index`.",
    ),
    Kind(
        "IDX-004",
        "damaged index",
        ERROR,
        "Pages of the index are not what was written, or its files are not there.",
        "Open the store: it makes the index again from entry logs and rows.",
        "files",
    ),
    Kind(
        "IDX-005",
        "two places for one entry",
        ERROR,
        "The index has more than one place for an entry.",
        "Make the index again: `ledgerstore rebuild-index`.",
        "index rows",
    ),
    Kind(
        "IDX-006",
        "index points at an older copy",
        WARNING,
        "An entry was written twice, and the index has the place of the earlier copy.",
        "Make the index again: `ledgerstore rebuild-index`.",
        "index rows",
    ),
    # ── ledgers ──────────────────────────────────────────────────────────────────────────────────────
    Kind(
        "LGR-001",
        "gap in a ledger",
        INFORMATION,
        "Entries between a ledger's first and last are not here. A bookie that shares a ledger with others "
        "has such gaps; so has a writer who chose the ids.",
        "If this store should have all of them: give the ledger's ensembles (`audit --replicas`).",
    ),
    Kind(
        "LGR-002",
        "ledger rows",
        ERROR,
        "ledgers.rows, which says what is known of ledgers beside their entries, is damaged or gone.",
        "Restore the file from a copy: opening refuses, because fences, keys and deletes stand in it.",
        "files",
    ),
    Kind(
        "LGR-003",
        "a deleted ledger may be back",
        WARNING,
        "A ledger was deleted here before a bookie ran in this directory, and entries of it are there again.",
        "Delete it once more, if it should be gone.",
        "ledgers",
    ),
    Kind(
        "LGR-004",
        "last add confirmed",
        WARNING,
        "Entries say of themselves, or of later ones, that they were confirmed before they were added.",
        "None: the entries are whole. Their writer was at fault.",
    ),
    Kind(
        "LGR-005",
        "entries that nothing verifies",
        INFORMATION,
        "The ledger has no digest, or one that only its password verifies: its entries are not known to be "
        "good, nor bad.",
        "For MAC digests give the password (`--password LEDGER=TEXT`).",
    ),
    Kind(
        "LGR-006",
        "a ledger's row contradicts the journals",
        ERROR,
        "A journal before the mark fences a ledger, names its key or confirms more of it than its row knows.",
        "Fence the ledger again; keep the files, and report it: a checkpoint should have written it down.",
        "records",
    ),
    Kind(
        "LGR-007",
        "entries of a deleted or unknown ledger",
        INFORMATION,
        "Records in a log that belong to no living ledger, or are older copies: a collection will free them.",
        "None.",
        "bytes",
    ),
    Kind(
        "LGR-008",
        "entries in several logs",
        INFORMATION,
        "Entries stand more than once in a bookie's logs: a replay or a compaction was interrupted, they "
        "were added again, or a log was copied under another id. The copy that stands last counts.",
        "None.",
    ),
    # ── the directory ────────────────────────────────────────────────────────────────────────────────
    Kind(
        "CKE-001",
        "cookie",
        ERROR,
        "A directory's VERSION file, which says whose it is, is missing or damaged, or another store's.",
        "Restore it from a copy. Is the right disk mounted?",
        "files",
    ),
    Kind(
        "DIR-001",
        "unknown file",
        INFORMATION,
        "A file that no store and no bookie writes.",
        "None: it is never touched.",
        "files",
    ),
    Kind(
        "DIR-002",
        "leftover",
        INFORMATION,
        "What an interrupted process has left: a draft, or an entry log that no checkpoint completed.",
        "None: opening the store removes what is its own.",
        "files",
    ),
    Kind(
        "DIR-003",
        "written by a newer version",
        ERROR,
        "A file that only a newer version of this package, or of BookKeeper, can read.",
        "Look at it with that version.",
        "files",
    ),
    Kind(
        "DIR-004",
        "cannot be read",
        ERROR,
        "The system refuses to read a file, or a part of it.",
        "Look at the disk and at the permissions; what stands there was not verified.",
        "files",
    ),
    # ── replicas ─────────────────────────────────────────────────────────────────────────────────────
    Kind(
        "RPL-001",
        "too few copies",
        ERROR,
        "Entries that fewer stores hold than the ledger's write quorum, or not the stores that should.",
        "Bring the store back on which they should be, or copy them from another.",
    ),
    Kind(
        "RPL-002",
        "copies differ",
        ERROR,
        "Two stores hold different bytes for the same entry, each with a digest that matches its own.",
        "Find out who wrote twice; the last add confirmed says which of them a reader may have seen.",
    ),
    Kind(
        "RPL-003",
        "a copy too many",
        INFORMATION,
        "A store holds entries that its place in the ensemble does not give it.",
        "None: an earlier ensemble or a repair has left them.",
    ),
)

KINDS = {kind.id: kind for kind in _ALL}
