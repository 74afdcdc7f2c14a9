"""The page of a run, as HTML that needs nothing else: no server, no network, no script, no other file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from page.absolute import absolute
from page.bars import bars
from page.plots import as_it_grows, by_writers
from page.run import load
from page.settings import again, settings
from page.standing import Score, standings
from page.style import head
from page.verdict import verdict
from recovery.page.markup import tag

if TYPE_CHECKING:
    from page.run import Said


def render(said: Said) -> str:
    """The page of a file of `store.py`, read as JSON. The same file gives the same bytes."""
    run = load(said)
    score = Score(standings(run))
    body = tag(
        "main",
        tag("p", tag("b", "ledgerstore"), " against its peers and the raw limit", class_="kicker"),
        verdict(run, score),
        bars(score),
        by_writers(run),
        as_it_grows(run),
        absolute(run),
        settings(run),
        again(run),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{head("ledgerstore: bench")}<body>{body}</body></html>\n'
