"""Planted bugs of auto-recovery's machines. The tests of each machine find them.

Some are what Apache BookKeeper does, or has done. Their names begin with the number of its issue, as in
docs/conformance.md.
"""

from __future__ import annotations

import ast
import importlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from code_edits import Drop, Edit, EditAddress, Replace, Rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent.parent

CHECK = "recovery.autorecovery.check"
COPYING = "recovery.autorecovery.copying"
FRAGMENTS = "recovery.autorecovery.fragments"
REPAIR = "recovery.autorecovery.repair"
LOST_BOOKIES = "recovery.autorecovery.lost_bookies"


@dataclass(frozen=True, slots=True)
class PlantedRepairBug:
    """A bug, and the names of the tests of which one has to find it; none for the random worlds."""

    name: str
    rule: str
    change: EditAddress
    found_by: tuple[str, ...] = ()

    def tests(self, names: Mapping[str, Any]) -> list[Callable[[], None]]:
        return [names[name] for name in self.found_by]


def _bug(name: str, rule: str, module: str, function: str, edit: Edit, *found_by: str) -> PlantedRepairBug:
    return PlantedRepairBug(name, rule, EditAddress(module, function, edit), found_by)


@contextmanager
def planted(bug: PlantedRepairBug) -> Iterator[None]:
    """Run a block with the bug."""
    change = bug.change
    tree = ast.parse((ROOT / change.file).read_text())
    change.edited(tree)
    namespace: dict[str, Any] = {"__name__": change.module}
    exec(compile(ast.fix_missing_locations(tree), change.file, "exec"), namespace)
    target: Any = importlib.import_module(change.module)
    changed: Any = namespace
    *owners, name = change.function.split(".")
    for owner in owners:
        target, changed = (
            vars(target)[owner],
            vars(changed)[owner] if changed is not namespace else changed[owner],
        )
    function, new = vars(target)[name], vars(changed)[name] if owners else changed[name]
    if isinstance(function, property):
        function, new = function.fget, new.fget
    code = function.__code__
    function.__code__ = new.__code__
    try:
        yield
    finally:
        function.__code__ = code


REPAIR_BUGS = (
    _bug(
        "metadata-before-the-copy",
        "the metadata name a bookie only when it has every entry",
        REPAIR,
        "LedgerRepair._next",
        Replace("not self._tasks[-1].fragment.count", "True"),
    ),
    _bug(
        "C13-by-value",
        "a segment is named by its key, and not by its list of bookies",
        REPAIR,
        "LedgerRepair._with_moves",
        Replace(
            "by_segment.get(segment.first_entry, ())",
            "[one for one in self._moves if one.old in segment.bookies]",
        ),
    ),
    _bug(
        "open-fragment-is-copied",
        "the last segment of a ledger that is not closed is not touched",
        FRAGMENTS,
        "fixed_segments",
        Replace("metadata.is_closed", "True"),
    ),
    _bug(
        "C14-unreachable-is-missing",
        "a bookie that gives no useful answer has lost nothing",
        CHECK,
        "judge",
        Rewrite("return CopyState.UNREACHABLE", "return CopyState.MISSING"),
        "test_a_busy_bookie_gets_no_copies",
    ),
    _bug(
        "digest-is-not-verified",
        "an entry counts only if its digest is right",
        CHECK,
        "judge",
        Replace("entries.decode(entry_id, data) is None", "False"),
    ),
    _bug(
        "C15-every-entry-to-every-target",
        "only entries that are striped to the index are copied",
        FRAGMENTS,
        "Fragment.entries",
        Replace("map(self.entry_at, range(self.count))", "iter(range(self.key.segment, self.stop))"),
    ),
    _bug(
        "failed-add-is-ignored",
        "the target has to answer every add with success",
        COPYING,
        "FragmentCopy.answered",
        Drop("self._fail(...)"),
        "test_a_target_that_fills_up_does_not_get_into_the_metadata",
    ),
    _bug(
        "4163-without-the-recovery-flag",
        "copies are added as in a recovery, because the ledger may be fenced",
        COPYING,
        "FragmentCopy._read_ended",
        Replace("_REPAIRING", "AddOptions()"),
    ),
    _bug(
        "last-entry-is-not-read",
        "the first and the last entry of each fragment are read",
        CHECK,
        "positions",
        Replace("{0, count - 1}", "{0}"),
        "test_the_last_entry_of_a_fragment_is_read_at_every_bookie",
    ),
    _bug(
        "suspects-are-read-in-part",
        "every entry of a suspected bookie is read",
        REPAIR,
        "LedgerRepair._percent",
        Replace("is_suspected or fragment.key in self._in_place", "False"),
    ),
    _bug(
        "silent-suspects-count-as-read",
        "every entry of a suspected bookie is read, also if it does not answer at first",
        REPAIR,
        "LedgerRepair._note_read",
        Replace("one.unreachable is not None", "False"),
        "test_a_suspect_that_was_silent_at_first_is_read_completely_by_a_later_check",
    ),
    _bug(
        "3220-an-empty-fragment-never-ends",
        "a fragment without entries only changes the metadata",
        REPAIR,
        "LedgerRepair._move",
        Rewrite(
            "self._moves.append(...)",
            "if task.fragment.count:\n"
            "    self._moves.append(_Move(task.fragment.key, task.fragment.bookie, task.target))",
        ),
    ),
    _bug(
        "3905-never-in-place",
        "a bookie that is there takes again what it lacks",
        REPAIR,
        "LedgerRepair._task_for",
        Replace("fragment.bookie in self._bookies.writable", "False"),
        "test_a_wiped_bookie_is_filled_again_in_place_when_there_is_no_other",
    ),
    _bug(
        "in-place-for-ever",
        "a bookie that does not keep what it takes is replaced",
        REPAIR,
        "LedgerRepair._task_for",
        Replace("self._in_place.get(key, set()).isdisjoint(bad)", "True"),
        "test_a_bookie_that_does_not_keep_what_it_takes_is_replaced",
    ),
    _bug(
        "in-place-at-a-read-only-bookie",
        "a read-only bookie takes nothing",
        REPAIR,
        "LedgerRepair._task_for",
        Replace("fragment.bookie in self._bookies.writable", "True"),
        "test_a_read_only_bookie_that_lacks_entries_is_replaced",
    ),
    _bug(
        "N16-read-only-is-lost",
        "a read-only bookie is there",
        REPAIR,
        "LedgerRepair._begin_check",
        Replace("self._bookies.all", "self._bookies.writable"),
        "test_a_read_only_bookie_that_has_its_entries_stays",
    ),
    _bug(
        "lost-although-a-bookie-may-come-back",
        "entries are lost only if every bookie has answered",
        COPYING,
        "FragmentCopy._note_silence",
        Drop("self._silent.setdefault(...)"),
        "test_entries_of_bookies_that_are_not_registered_may_come_back",
    ),
    _bug(
        "two-fragments-at-one-bookie",
        "two bookies of a segment are not replaced by the same one",
        REPAIR,
        "LedgerRepair._task_for",
        Drop("planned[key.segment] = ..."),
    ),
    _bug(
        "no-check-after-the-repair",
        "a ledger is checked again after it was repaired",
        REPAIR,
        "LedgerRepair._next",
        Rewrite("return [ReadMetadata()]", "return self._end(Repaired())"),
        "test_a_bookie_that_does_not_keep_what_it_takes_is_replaced",
    ),
    _bug(
        "an-unread-fragment-is-whole",
        "an outcome that is not known is not taken for a good one",
        REPAIR,
        "LedgerRepair._outcome",
        Replace("self._waits_for is not None or again", "False"),
        "test_a_bookie_without_an_answer_has_lost_nothing",
    ),
)

LOST_BOOKIES_BUGS = (
    _bug(
        "a-returned-bookie-is-still-audited",
        "an audit is cancelled when the bookie is back within the delay",
        LOST_BOOKIES,
        "LostBookies.registered",
        Replace("lost - self._audited", "(lost - self._audited) | set(self._lost_since)"),
        "test_a_bookie_that_returns_within_the_delay_cancels_the_audit",
    ),
    _bug(
        "the-delay-holds-for-several",
        "several lost bookies are audited at once",
        LOST_BOOKIES,
        "LostBookies.due_at",
        Replace("max(self._lost_since.values())", "max(self._lost_since.values()) + self._delay_s"),
        "test_several_lost_bookies_are_audited_at_once",
    ),
    _bug(
        "C17-an-audited-bookie-is-new-again",
        "a lost bookie is reported once",
        LOST_BOOKIES,
        "LostBookies.audited",
        Drop("self._audited.add(bookie)"),
        "test_a_bookie_whose_ledgers_are_marked_is_not_audited_again_until_it_was_back",
    ),
    _bug(
        "an-audited-bookie-is-never-new-again",
        "a bookie that was back is new when it is lost again",
        LOST_BOOKIES,
        "LostBookies.registered",
        Drop("self._audited &= lost"),
        "test_a_bookie_whose_ledgers_are_marked_is_not_audited_again_until_it_was_back",
    ),
    _bug(
        "the-same-delay-is-no-request",
        "the delay written again with its value is a request for an audit",
        LOST_BOOKIES,
        "LostBookies.delay_written",
        Replace("(0, self._delay_s)", "(0,)"),
        "test_the_same_delay_again_is_a_request_and_another_one_counts_from_the_loss",
    ),
    _bug(
        "only-cookies-are-known",
        "a bookie that was registered is known",
        LOST_BOOKIES,
        "LostBookies.registered",
        Drop("self._known |= bookies"),
        "test_a_bookie_without_a_cookie_is_known_when_it_was_registered",
    ),
)
