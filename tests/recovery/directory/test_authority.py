"""The table that decides what speaks for the others: every combination, and that each caller asks it."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from itertools import count, product
from typing import TYPE_CHECKING

import arbitrated_directories
import pytest
from arbitrated_directories import FOREIGN_JOURNAL, place_of
from simulated_directories import STORE_ID
from stepped_store import SMALL

from recovery.bookkeeper.import_directory import import_directory
from recovery.directory.authority import (
    TABLE,
    Authority,
    DataFiles,
    Facts,
    ForeignFile,
    IndexFile,
    MarkFile,
    MetadataFile,
    ReplayFrom,
    decide,
)
from recovery.directory.evidence import examine, examine_names
from recovery.directory.layout import Layout
from recovery.opening.assembly import Platform
from recovery.opening.open_store import Opening
from recovery.opening.rebuild_index import check_can_be_rebuilt, rebuild_index
from recovery.proving.stepped_workers import SteppedWorkers
from recovery.view.open_view import ViewReader
from storage.entry.position import START
from storage.errors import CorruptionError, ForeignStore, NewerFormat, NotAStore, StoreError
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from file_index import FileIndexPlace

EVERY_COMBINATION = [
    Facts(*values) for values in product(MarkFile, IndexFile, MetadataFile, ForeignFile, DataFiles)
]
LOST = (MarkFile.DAMAGED, MarkFile.TORN, MarkFile.MISSING)
USABLE = (IndexFile.EQUAL, IndexFile.AHEAD)
UNREADABLE = (IndexFile.MISSING, IndexFile.DAMAGED)


def is_possible(facts: Facts) -> bool:
    """Return whether files can show these facts together."""
    if facts.data is DataFiles.NONE and (
        facts.metadata is MetadataFile.PRESENT or facts.foreign is not ForeignFile.NONE
    ):
        return False  # both are data
    if facts.mark is not MarkFile.OURS and facts.index in (IndexFile.EQUAL, IndexFile.OTHER_HISTORY):
        return False  # there is nothing to compare it with
    if facts.mark is MarkFile.OURS and facts.index is IndexFile.UNUSED:
        return False  # then it is compared
    if facts.foreign is ForeignFile.LOG and facts.index not in (*USABLE, IndexFile.UNUSED):
        return False  # only an index tells which logs are known
    if facts.foreign is ForeignFile.JOURNAL and facts.mark is not MarkFile.OURS and facts.index in UNREADABLE:
        return False  # only a mark of ours or an index tells which journals are known
    if facts.index is IndexFile.UNREAD:
        # It is read unless the mark alone decides.
        return facts.mark in (MarkFile.NEWER, MarkFile.BOOKIE, MarkFile.EMPTY) or (
            facts.mark is MarkFile.OURS and facts.foreign is ForeignFile.JOURNAL
        )
    return True


POSSIBLE = [facts for facts in EVERY_COMBINATION if is_possible(facts)]


def in_plain_words(facts: Facts) -> Authority:  # noqa: C901 - one question after the other
    """Decide as an engineer would, without the table."""
    mark, index = facts.mark, facts.index
    if mark is MarkFile.NEWER:
        return Authority.NEWER_VERSION
    if mark is MarkFile.MISSING and facts.data is DataFiles.NONE:
        return Authority.NEW_STORE
    was_ours = index is not IndexFile.MISSING or facts.metadata is MetadataFile.PRESENT
    if not was_ours and mark not in (MarkFile.OURS, MarkFile.DAMAGED):
        return Authority.FOREIGN
    if mark in (MarkFile.BOOKIE, MarkFile.EMPTY):
        return Authority.BOOKIE
    if mark is MarkFile.OURS and facts.foreign is ForeignFile.JOURNAL:
        return Authority.BOOKIE
    if index is IndexFile.NEWER:
        return Authority.NEWER_VERSION
    if index in (*UNREADABLE, IndexFile.OTHER_HISTORY):
        if mark is MarkFile.OURS:
            return Authority.MARK
        return Authority.NOTHING if mark is MarkFile.DAMAGED else Authority.JOURNALS
    if mark is MarkFile.MISSING and index is IndexFile.UNUSED:
        return Authority.JOURNALS
    if facts.foreign is not ForeignFile.NONE:
        return Authority.BOOKIE
    return Authority.AGREED if index is IndexFile.EQUAL else Authority.INDEX


def test_every_combination_has_an_answer() -> None:
    assert len(EVERY_COMBINATION) == 7 * 8 * 2 * 3 * 2
    assert {decide(facts).authority for facts in EVERY_COMBINATION} == set(Authority)


def test_every_possible_combination_is_decided_as_an_engineer_would() -> None:
    assert {facts: decide(facts).authority for facts in POSSIBLE} == {
        facts: in_plain_words(facts) for facts in POSSIBLE
    }


def test_every_rule_decides_something_possible() -> None:
    used = Counter(id(decide(facts)) for facts in POSSIBLE)
    assert [rule.why for rule in TABLE if not used[id(rule)]] == []


def test_an_index_that_was_not_read_never_speaks() -> None:
    unread = [facts for facts in EVERY_COMBINATION if facts.index is IndexFile.UNREAD]
    assert {decide(facts).authority for facts in unread}.isdisjoint({Authority.AGREED, Authority.INDEX})
    assert ReplayFrom.INDEX not in {decide(facts).replay_from for facts in unread}


def test_a_mark_of_ours_is_replayed_from_unless_the_index_is_ahead_of_it() -> None:
    ours = [facts for facts in POSSIBLE if facts.mark is MarkFile.OURS]
    ahead = [facts for facts in ours if decide(facts).replay_from is ReplayFrom.INDEX]
    assert {(facts.index, facts.foreign) for facts in ahead} == {(IndexFile.AHEAD, ForeignFile.NONE)}
    assert ReplayFrom.FIRST_JOURNAL not in {decide(facts).replay_from for facts in ours}


# ── the callers, on directories that show the facts ──────────────────────────────────────────────────────

ON_DISK = [
    facts
    for facts in POSSIBLE
    # The data that a checkpoint has written is not removed while the files that name it stay.
    if (facts.data is DataFiles.SOME or facts.mark is MarkFile.MISSING)
    and not (facts.data is DataFiles.NONE and facts.index in (*USABLE, IndexFile.NEWER))
    and facts.index not in (IndexFile.UNREAD, IndexFile.UNUSED)
]


def name_of(facts: Facts) -> str:
    return "-".join(
        one.name.lower() for one in (facts.mark, facts.index, facts.metadata, facts.foreign, facts.data)
    )


class Case:
    """A directory that shows the facts; a new one for each caller."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.rule = decide(facts)

    def made(self) -> tuple[Layout, FileIndexPlace]:
        disk = arbitrated_directories.directory(
            self.facts.mark.name,
            self.facts.index.name,
            self.facts.metadata.name,
            self.facts.foreign.name,
            self.facts.data.name,
        )
        layout = Layout(disk.root())
        return layout, place_of(layout, self.facts.index.name)


@pytest.fixture(params=ON_DISK, ids=name_of)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def outcome(act: Callable[[], IndexFound | str]) -> IndexFound | str | type[StoreError]:
    try:
        return act()
    except StoreError as error:
        found: dict[bool, type[StoreError]] = {True: type(error), False: StoreError}
        return found[not isinstance(error, CorruptionError) or error.finding == "MRK-001"]


def test_the_facts_are_read_from_the_files(case: Case) -> None:
    layout, place = case.made()
    with ExitStack() as held:
        evidence = examine(layout, place.open, held)
    # A bookie's mark decides before the index is opened, and its answer is the same.
    assert (evidence.authority, evidence.rule.replay_from) == (case.rule.authority, case.rule.replay_from)
    assert (evidence.index is None) == (case.rule.authority not in (Authority.AGREED, Authority.INDEX))
    if case.rule.authority in (Authority.FOREIGN, Authority.NEW_STORE):
        assert examine_names(layout).authority is case.rule.authority


OPENED: dict[Authority, IndexFound | type[StoreError]] = {
    Authority.AGREED: IndexFound.GOOD,
    Authority.INDEX: IndexFound.AHEAD,
    Authority.MARK: IndexFound.REBUILT,
    Authority.BOOKIE: IndexFound.ADOPTED,
    Authority.FOREIGN: ForeignStore,
    Authority.NEW_STORE: IndexFound.MADE,
    Authority.JOURNALS: CorruptionError,
    Authority.NOTHING: CorruptionError,
    Authority.NEWER_VERSION: NewerFormat,
}


def test_an_opening_does_what_the_table_says(case: Case) -> None:
    layout, place = case.made()

    def opened() -> IndexFound:
        salts = count(1)
        platform = Platform(
            SteppedWorkers().new_worker, new_salt=lambda: next(salts), new_id=lambda: "5" * 32, clock=float
        )
        with Opening(layout, place, SMALL, platform).run() as store:
            if case.rule.authority is not Authority.NEW_STORE:
                assert list(store.ledger(1).payloads()) == [b"first", b"second", b"third"]
            return store.opened.index

    assert outcome(opened) == expected(case, OPENED)


VIEWED = {
    **OPENED,
    Authority.INDEX: IndexFound.GOOD,
    Authority.FOREIGN: IndexFound.ADOPTED,
    Authority.NEW_STORE: NotAStore,
}
"""A view writes nothing, so it neither makes a store nor turns a bookie's directory into one."""


def test_a_view_does_what_the_table_says(case: Case) -> None:
    layout, place = case.made()

    def viewed() -> IndexFound:
        view = ViewReader(layout, place.open).run()
        assert view.count(1) == 3
        return view.index_found

    assert outcome(viewed) == expected(case, VIEWED)


OURS, A_BOOKIE_S = "ours", "a bookie's"
REBUILT: dict[Authority, str | type[StoreError]] = {
    Authority.AGREED: OURS,
    Authority.INDEX: OURS,
    Authority.MARK: OURS,
    Authority.BOOKIE: A_BOOKIE_S,
    Authority.FOREIGN: A_BOOKIE_S,
    Authority.NEW_STORE: NotAStore,
    Authority.JOURNALS: A_BOOKIE_S,
    Authority.NOTHING: CorruptionError,
    Authority.NEWER_VERSION: NewerFormat,
}


def test_a_rebuild_of_the_index_does_what_the_table_says(case: Case) -> None:
    layout, place = case.made()

    def rebuilt() -> str:
        check_can_be_rebuilt(layout)
        return A_BOOKIE_S if rebuild_index(layout, place).was_imported else OURS

    wanted: object = expected(case, REBUILT)
    if case.rule.authority is Authority.INDEX and case.facts.mark is not MarkFile.OURS:
        # Only a damaged mark must be written again by an opening first.
        wanted = CorruptionError if case.facts.mark is MarkFile.DAMAGED else A_BOOKIE_S
    assert outcome(rebuilt) == wanted


def test_an_import_replays_from_where_the_table_says(case: Case) -> None:
    layout, place = case.made()
    with ExitStack() as held:
        evidence = examine(layout, place.open, held)
        mark = getattr(evidence.found, "position", START)
        index = START if evidence.state is None else evidence.state.mark
    if IndexFile.NEWER is case.facts.index or MarkFile.NEWER is case.facts.mark:
        with pytest.raises(NewerFormat):
            import_directory(layout, place, STORE_ID)
    elif case.rule.authority is Authority.NOTHING:
        with pytest.raises(CorruptionError, match="MRK-001"):
            import_directory(layout, place, STORE_ID)
    else:
        imported = import_directory(layout, place, STORE_ID)
        if case.rule.replay_from is not ReplayFrom.INDEX or evidence.state is not None:
            wanted = {ReplayFrom.MARK: mark, ReplayFrom.INDEX: index, ReplayFrom.FIRST_JOURNAL: START}
            assert imported.mark.position == wanted[case.rule.replay_from]
        assert imported.mark.trailer is not None
        if case.facts.foreign is ForeignFile.JOURNAL:
            assert imported.mark.trailer.newest_journal == FOREIGN_JOURNAL


def expected(
    case: Case,
    answers: dict[Authority, IndexFound | type[StoreError]] | dict[Authority, str | type[StoreError]],
) -> object:
    """Return the answer; an import that meets an index of a newer version refuses too."""
    imports = case.rule.authority in (Authority.BOOKIE, Authority.FOREIGN)
    if imports and case.facts.index is IndexFile.NEWER and answers[case.rule.authority] is not ForeignStore:
        return NewerFormat
    return answers[case.rule.authority]
