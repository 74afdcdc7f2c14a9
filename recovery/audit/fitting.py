"""Passwords that do not fit: what they make of a ledger is not damage.

A wrong password makes every entry of its ledger look damaged. So where the password is not the one whose key
the ledger has, or, if nobody knows the key, where no entry verifies with it, all is looked at once more
without: the entries are unverified then, and what does not fit is said once instead of for each of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.inspect import inspect
from recovery.audit.ways import Ways
from recovery.verify.runs import no_runs
from storage.codec.digest import master_key
from storage.entry import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.audit.asked import Asked
    from recovery.audit.inspected import AuditReport
    from recovery.verify.facts import StoreFacts
    from recovery.verify.runs import Runs


def inspect_with_what_fits(asked: Asked) -> AuditReport:
    """As `inspect`, and in `misfits` the ledgers whose password does not fit."""

    def look(ways: Ways) -> AuditReport:
        # What was kept with a wrong password is not sound, and nobody goes on from it.
        return inspect(asked if ways is asked.ways else replace(asked, ways=ways, keep=None))

    return with_what_fits(look, asked.ways)


def with_what_fits(look: Callable[[Ways], AuditReport], ways: Ways) -> AuditReport:
    """The same for whatever looks."""
    report = look(ways)
    wrong = misfits([store.facts for store in report.stores], ways)
    if not wrong:
        return report
    again = look(_without(report, ways, wrong))
    return replace(again, bytes_read=report.bytes_read + again.bytes_read, misfits=tuple(sorted(wrong)))


def misfits(stores: list[StoreFacts], ways: Ways) -> frozenset[int]:
    """The ledgers with MACs of which a password was given that is not theirs."""
    given = ((ledger, ways.password_of(ledger)) for ledger in _protected(stores))
    return frozenset(
        ledger for ledger, password in given if password is not None and not _fits(stores, ledger, password)
    )


def _fits(stores: list[StoreFacts], ledger: int, password: bytes) -> bool:
    """A ledger's key that a row or a journal knows decides; where there is none, its entries do."""
    keys = set(_keys(stores, ledger))
    return master_key(password) in keys if keys else _verifies_any(stores, ledger)


def _keys(stores: list[StoreFacts], ledger: int) -> Iterator[bytes]:
    for facts in stores:
        row = facts.rows.get(ledger)
        if row is not None and row.master_key is not None:
            yield row.master_key
        told = (fact for journal in facts.journals for fact in journal.facts if fact.ledger_id == ledger)
        yield from (fact.master_key for fact in told if fact.master_key is not None)


def _verifies_any(stores: list[StoreFacts], ledger: int) -> bool:
    """Whether any of its entries does. In a journal's sealed group nobody has asked them."""
    logs = [_of(log.runs, ledger) for facts in stores for log in facts.logs]
    journals = [_of(journal.before, ledger) for facts in stores for journal in facts.journals]
    journals += [_of(journal.behind, ledger) for facts in stores for journal in facts.journals]
    asked = np.concatenate(logs) if any(len(one) for one in logs) else np.concatenate([no_runs(), *journals])
    return not len(asked) or bool((asked["count"] > asked["bad"]).any())


def _of(runs: Runs, ledger: int) -> Runs:
    some: Runs = runs[runs["ledger"] == ledger]
    return some


def _protected(stores: list[StoreFacts]) -> frozenset[int]:
    every = (row for facts in stores for row in facts.rows.values())
    rows = (row.ledger_id for row in every if row.digest_type is DigestType.MAC)
    types = [part.types for facts in stores for part in facts.logs]
    types += [part.types for facts in stores for part in facts.journals]
    told = (ledger for some in types for ledger, kind in some.items() if kind is DigestType.MAC)
    return frozenset((*rows, *told))


def _without(report: AuditReport, ways: Ways, wrong: frozenset[int]) -> Ways:
    """Each ledger's password by itself: one for all others would reach those that it does not fit."""
    protected = _protected([store.facts for store in report.stores]) | ways.passwords.keys()
    given = {ledger: ways.password_of(ledger) for ledger in protected - wrong}
    return Ways(passwords={ledger: one for ledger, one in given.items() if one is not None})
