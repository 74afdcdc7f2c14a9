"""What kinds of findings mean: one by its id, or all of them.

id, severity, title, counts     counts: what a finding's count is a number of
cause, remedy, look             what it means, what to do, the command that shows such a place
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.report.looking import example
from recovery.shell.columns import Column
from recovery.shell.entry_cells import free_text
from recovery.shell.exits import CannotDo, say
from recovery.shell.writers import Form, writer
from recovery.verify.catalogue import KINDS

if TYPE_CHECKING:
    from recovery.shell.columns import Row
    from recovery.verify.catalogue import Kind

_LIST = [Column("id"), Column("severity"), Column("counts", rank=1), Column("title", text=free_text)]
_UPRIGHT = [Column("what"), Column("words", text=free_text)]
_WORDS = {"cause": "it means", "remedy": "what to do", "counts": "counted", "look": "look at it"}


def explain_kind(place: str, form: Form) -> None:
    """One kind."""
    kind = KINDS.get(place.upper())
    if kind is None:
        raise CannotDo(f"there is no finding {place}: `ledgerstore explain --findings` lists them")
    row = _row(kind)
    out = writer(form, _UPRIGHT)
    for line in _lines(row) if form is Form.TABLE else [row]:
        out.row(line)
    out.end()
    say(f"{kind.id}: {row['severity']}, {kind.title}")


def list_kinds(form: Form) -> None:
    """All kinds."""
    out = writer(form, _LIST)
    for kind in KINDS.values():
        out.row(_row(kind))
    out.end()
    say(f"findings: {len(KINDS)} kinds")


def _row(kind: Kind) -> Row:
    return {
        "id": kind.id,
        "severity": kind.severity.name.lower(),
        "counts": kind.counts,
        "title": kind.title,
        "cause": kind.cause,
        "remedy": kind.remedy,
        "look": example(kind.id),
    }


def _lines(row: Row) -> list[Row]:
    return [{"what": words, "words": row[name]} for name, words in _WORDS.items()]
