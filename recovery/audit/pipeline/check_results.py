"""The questions that are asked of every store, and the answers: passed, failed, or not run with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.audit.model.audit_report import Check
from recovery.audit.model.store_facts import BookieIndexFacts, DirectoryOwner, IndexFacts, UnreadBookieIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.audit.findings.finding import Finding
    from recovery.audit.model.store_facts import StoreFacts

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


class _Question(NamedTuple):
    id: str
    title: str
    kinds: tuple[str, ...]
    """The kinds of findings that make it fail."""


_QUESTIONS = (
    _Question("cookies", "the directories belong together", ("CKE-001",)),
    _Question(
        "mark",
        "the mark is readable, and names a record of an existing journal",
        ("MRK-001", "MRK-002", "MRK-003", "MRK-004"),
    ),
    _Question(
        "journals",
        "every journaled record that would be replayed is whole",
        ("JRN-002", "JRN-003", "JRN-004"),
    ),
    _Question("journals-before", "journals are also whole before the mark", ("JRN-005",)),
    _Question("journals-indexed", "every entry of a journal before the mark is in a log", ("JRN-006",)),
    _Question("rows", "ledgers.rows is whole, and agrees with the journals", ("LGR-002", "LGR-006")),
    _Question(
        "framing",
        "entry logs exist, and their framing is intact from end to end",
        ("ELG-001", "ELG-004", "ELG-005", "ELG-008", "DIR-003", "DIR-004", "DIR-005"),
    ),
    _Question(
        "digests", "every entry in a log that can be verified carries the digest of its bytes", ("ELG-003",)
    ),
    _Question("maps", "the ledgers maps describe what the logs hold", ("ELG-002",)),
    _Question("index", "the index is whole", ("IDX-004",)),
    _Question(
        "index-to-log",
        "each row of the index points at its entry",
        ("ELG-007", "IDX-001", "IDX-002", "IDX-005", "IDX-006", "IDX-007"),
    ),
    _Question("log-to-index", "each living entry has a row in the index", ("IDX-003",)),
    _Question("confirmed", "no entry confirms itself or a later entry", ("LGR-004",)),
    _Question("deleted", "no deleted ledger is back", ("LGR-003",)),
)

_OF_INDEX = frozenset({"index", "index-to-log", "log-to-index", "journals-indexed"})
_OF_BOOKIE_INDEX = frozenset({"index", "index-to-log"})
_OF_OURS = frozenset({"rows", "deleted"})


def checks(facts: StoreFacts, findings: Sequence[Finding]) -> tuple[Check, ...]:
    """Return the answers, in a fixed order."""
    return tuple(_answer(one, facts, findings) for one in _QUESTIONS)


def _answer(question: _Question, facts: StoreFacts, findings: Sequence[Finding]) -> Check:
    against = [one for one in findings if one.kind in question.kinds]
    wrong = [one for one in against if one.is_wrong]
    why_not = _why_not(question, facts)
    if wrong:
        return Check(question.id, question.title, FAILED, why_not, len(wrong))
    if why_not:
        return Check(question.id, question.title, NOT_RUN, why_not)
    return Check(question.id, question.title, PASSED, _but(question, findings))


def _why_not(question: _Question, facts: StoreFacts) -> str:
    if question.id in _OF_INDEX and not isinstance(facts.index, IndexFacts):
        if isinstance(facts.bookie_index, BookieIndexFacts) and question.id in _OF_BOOKIE_INDEX:
            return ""
        if facts.owner is DirectoryOwner.BOOKIE:
            return _why_not_of_bookie(facts)
        return "" if question.id == "index" else "there is no readable index"
    if question.id in _OF_OURS and facts.owner is DirectoryOwner.BOOKIE and not facts.rows:
        return "a bookie keeps these facts in an index that is not read"
    return ""


def _why_not_of_bookie(facts: StoreFacts) -> str:
    match facts.bookie_index:
        case BookieIndexFacts():
            return "a bookie's logs keep entries that its index has no more"
        case UnreadBookieIndex():
            return "the bookie's index cannot be read"
    return "the bookie keeps no index in RocksDB"


def _but(question: _Question, findings: Sequence[Finding]) -> str:
    if question.id != "digests":
        return ""
    unverified = sum(one.count for one in findings if one.kind == "LGR-005")
    return f"{unverified:,} entries are unverified: no digest, or no password for it" if unverified else ""
