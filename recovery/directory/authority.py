"""Decides which of lastMark, index, ledger metadata and journals counts if they disagree, as a table.

lastMark, the index and `ledgers.rows` each repeat a part of what the others say, so that one of them can be
lost. The facts are what each of them looks like, and whether a bookie has written files after us. The first
rule that fits is the answer. A test walks every combination.

Opening, views, `rebuild-index`, the import of a bookie's directory and the audit ask this table. They act
differently on the same answer, because a view may not write and an audit reports instead of raising.

Within the ledger metadata no file overrules another: each ledger's newest record counts, wherever it is.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class MarkFile(enum.Enum):
    """The condition of lastMark."""

    OURS = "whole, with our trailer"
    BOOKIE = "as a bookie writes it, without a trailer"
    EMPTY = "of no bytes, as a bookie leaves it that crashed while it rewrote the file"
    TORN = "shorter than a bookie's"
    DAMAGED = "wrong in a way in which no bookie leaves it"
    NEWER = "of a newer version"
    MISSING = "not there"


class IndexFile(enum.Enum):
    """The condition of our index, and how it compares with a mark of ours."""

    MISSING = "not there"
    UNREAD = "there, and not read because the other facts decide"
    DAMAGED = "not readable"
    NEWER = "of a newer version"
    OTHER_HISTORY = "older than the mark, or of another history, as a copy brings one back"
    UNUSED = "readable, and of a store without a checkpoint"
    EQUAL = "of the generation of the mark, and says the same"
    AHEAD = "of a later generation than the mark; or readable, and there is no mark of ours to compare with"


class MetadataFile(enum.Enum):
    """Whether `ledgers.rows` is there, which only a store of ours has."""

    MISSING = "not there"
    PRESENT = "there"


class ForeignFile(enum.Enum):
    """Files that a bookie has written after us."""

    NONE = "nothing"
    LOG = "an entry log that our index does not know"
    JOURNAL = "a journal after the newest one that we know"


class DataFiles(enum.Enum):
    """Whether there are journals, entry logs or `ledgers.rows`."""

    NONE = "none"
    SOME = "some"


class Authority(enum.Enum):
    """The files that speak for the others."""

    AGREED = "lastMark and index say the same"
    INDEX = "the index: lastMark is written again from it"
    MARK = "lastMark: the index is made again from the entry logs and the ledger metadata"
    BOOKIE = "a bookie has written last: everything is asked anew"
    FOREIGN = "a bookie has written here, and it never was a store of ours"
    NEW_STORE = "nothing was ever acknowledged here: a store is made, or made to its end"
    JOURNALS = "at most the journals, if all of them since the first are here"
    NOTHING = "nothing tells from where the journals must be replayed"
    NEWER_VERSION = "a newer version has written here"


class ReplayFrom(enum.Enum):
    """The source of the position from which the journals are replayed."""

    MARK = "lastMark"
    INDEX = "the state of the index"
    FIRST_JOURNAL = "nothing: all journals that there are"


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that decide about one directory."""

    mark: MarkFile
    index: IndexFile
    metadata: MetadataFile
    foreign: ForeignFile
    data: DataFiles


@dataclass(frozen=True, slots=True)
class AuthorityRule:
    """One line of the table: the values of each fact that it is for, and the answer with its reason."""

    authority: Authority
    replay_from: ReplayFrom
    why: str
    marks: frozenset[MarkFile] = frozenset(MarkFile)
    indexes: frozenset[IndexFile] = frozenset(IndexFile)
    metadata: frozenset[MetadataFile] = frozenset(MetadataFile)
    foreign: frozenset[ForeignFile] = frozenset(ForeignFile)
    data: frozenset[DataFiles] = frozenset(DataFiles)

    def fits(self, facts: Facts) -> bool:
        return (
            facts.mark in self.marks
            and facts.index in self.indexes
            and facts.metadata in self.metadata
            and facts.foreign in self.foreign
            and facts.data in self.data
        )


_MARK_OF_OURS = frozenset({MarkFile.OURS})
_NO_INDEX = frozenset({IndexFile.MISSING})
_NO_METADATA = frozenset({MetadataFile.MISSING})
_USABLE = frozenset({IndexFile.UNUSED, IndexFile.EQUAL, IndexFile.AHEAD})
_WRITTEN_BY_A_BOOKIE = frozenset({ForeignFile.LOG, ForeignFile.JOURNAL})

TABLE = (
    AuthorityRule(
        Authority.NEWER_VERSION,
        ReplayFrom.MARK,
        "lastMark is of a newer version",
        marks=frozenset({MarkFile.NEWER}),
    ),
    AuthorityRule(
        Authority.NEW_STORE,
        ReplayFrom.FIRST_JOURNAL,
        "lastMark is stored last when a store is made, so nothing was acknowledged before it",
        marks=frozenset({MarkFile.MISSING}),
        data=frozenset({DataFiles.NONE}),
    ),
    AuthorityRule(
        Authority.FOREIGN,
        ReplayFrom.MARK,
        "lastMark is a bookie's, and there is neither an index of ours nor ledgers.rows",
        marks=frozenset({MarkFile.BOOKIE}),
        indexes=_NO_INDEX,
        metadata=_NO_METADATA,
    ),
    AuthorityRule(
        Authority.FOREIGN,
        ReplayFrom.FIRST_JOURNAL,
        "there are files as a bookie leaves them before its first checkpoint, or when it crashes in one",
        marks=frozenset({MarkFile.EMPTY, MarkFile.TORN, MarkFile.MISSING}),
        indexes=_NO_INDEX,
        metadata=_NO_METADATA,
    ),
    AuthorityRule(
        Authority.BOOKIE,
        ReplayFrom.MARK,
        "a bookie has written lastMark over ours",
        marks=frozenset({MarkFile.BOOKIE}),
    ),
    AuthorityRule(
        Authority.BOOKIE,
        ReplayFrom.FIRST_JOURNAL,
        "a bookie has crashed while it wrote lastMark over ours, and its rule is to replay everything",
        marks=frozenset({MarkFile.EMPTY}),
    ),
    AuthorityRule(
        Authority.BOOKIE,
        ReplayFrom.MARK,
        "a bookie has begun a journal after the newest one that lastMark names",
        marks=_MARK_OF_OURS,
        foreign=frozenset({ForeignFile.JOURNAL}),
    ),
    AuthorityRule(
        Authority.NEWER_VERSION,
        ReplayFrom.MARK,
        "the index is of a newer version",
        indexes=frozenset({IndexFile.NEWER}),
    ),
    AuthorityRule(
        Authority.MARK,
        ReplayFrom.MARK,
        "the index is missing, damaged, or of another history than lastMark",
        marks=_MARK_OF_OURS,
        indexes=frozenset(IndexFile) - _USABLE,
    ),
    AuthorityRule(
        Authority.BOOKIE,
        ReplayFrom.MARK,
        "there is an entry log of a bookie that the index does not know",
        marks=_MARK_OF_OURS,
        foreign=frozenset({ForeignFile.LOG}),
    ),
    AuthorityRule(
        Authority.AGREED,
        ReplayFrom.MARK,
        "the last checkpoint has stored both",
        marks=_MARK_OF_OURS,
        indexes=frozenset({IndexFile.EQUAL}),
    ),
    AuthorityRule(
        Authority.INDEX,
        ReplayFrom.INDEX,
        "the last checkpoint has committed the index, and ended before it stored lastMark",
        marks=_MARK_OF_OURS,
    ),
    AuthorityRule(
        Authority.NOTHING,
        ReplayFrom.FIRST_JOURNAL,
        "the index cannot stand in for it",
        marks=frozenset({MarkFile.DAMAGED}),
        indexes=frozenset(IndexFile) - _USABLE,
    ),
    AuthorityRule(
        Authority.JOURNALS,
        ReplayFrom.FIRST_JOURNAL,
        "the index cannot stand in for it, and journals may have been trimmed",
        indexes=frozenset(IndexFile) - _USABLE,
    ),
    AuthorityRule(
        Authority.JOURNALS,
        ReplayFrom.FIRST_JOURNAL,
        "before the first checkpoint only lastMark says that the store was made to its end",
        marks=frozenset({MarkFile.MISSING}),
        indexes=frozenset({IndexFile.UNUSED}),
    ),
    AuthorityRule(
        Authority.BOOKIE,
        ReplayFrom.FIRST_JOURNAL,
        "a bookie has written files, and may have crashed while it rewrote lastMark",
        marks=frozenset({MarkFile.TORN}),
        foreign=_WRITTEN_BY_A_BOOKIE,
    ),
    AuthorityRule(
        Authority.BOOKIE,
        ReplayFrom.INDEX,
        "a bookie has written files, and no bookie leaves lastMark like this: it was ours",
        foreign=_WRITTEN_BY_A_BOOKIE,
    ),
    AuthorityRule(
        Authority.INDEX,
        ReplayFrom.INDEX,
        "lastMark is lost, and the state of the index holds all that was in it",
    ),
)


def decide(facts: Facts) -> AuthorityRule:
    """Return the first rule that fits; one always does."""
    return next(rule for rule in TABLE if rule.fits(facts))
