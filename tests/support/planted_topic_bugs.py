"""Planted bugs of the series of a topic. The cluster laboratory for topics finds each."""

from __future__ import annotations

from code_edits import Drop, Edit, EditAddress, Replace, Rewrite
from planted_cluster_bugs import PlantedClusterBug

from recovery.clusterlab.topics.schedule import TopicSchedule

CHANGE = "storage.cluster.topics.list_change"
CURSOR = "storage.cluster.topics.cursor_store"
READER = "storage.cluster.topics.reader"
POLICIES = "storage.cluster.topics.policies"
SERIES = "storage.cluster.topics.series"


def _bug(name: str, rule: str, module: str, function: str, edit: Edit, *invariants: str) -> PlantedClusterBug:
    changes = (EditAddress(module, function, edit),)
    return PlantedClusterBug(name, rule, changes, frozenset(invariants), kind=TopicSchedule)


TOPIC_BUGS = (
    # ── ledgers and their list ───────────────────────────────────────────────────────────────────────
    _bug(
        "topic-ledgers-are-deleted-before-the-list-is-written",
        "a ledger is deleted only after a list without it is written",
        SERIES,
        "TopicSeries._write",
        Rewrite(
            "return ...",
            "return [*map(DeleteLedger, self._deleted), *self._proceed([*self._change.begin()], now_ms)]",
        ),
        "O13",
    ),
    _bug(
        "topic-next-ledger-before-the-old-one-is-closed",
        "the next ledger is listed only after the one before is closed",
        SERIES,
        "TopicSeries._close_current",
        Rewrite(
            "return [CloseLedger(self.current)]",
            "self.state = SeriesState.CREATING\nreturn [CloseLedger(self.current), CreateLedger()]",
        ),
        "O13",
        "O8",
    ),
    _bug(
        "topic-opening-recovers-nothing",
        "an opening recovers every ledger that is not known to be closed",
        SERIES,
        "TopicSeries.states_read",
        Replace("not not_closed", "True"),
        "O13",
    ),
    _bug(
        "topic-counts-from-memory",
        "the list has the entries that the ledger has, and not those that were sent",
        SERIES,
        "TopicSeries._ended_ledger",
        Rewrite(
            "self._ends[self.current] = end",
            "self._ends[self.current] = ClosedLedger(self._sent, self._size)",
        ),
        "O3",
    ),
    _bug(
        "topic-ledger-that-lost-is-left",
        "a new ledger that no list names is deleted",
        SERIES,
        "TopicSeries._proceed",
        Replace("DeleteLedger(created)", "Trimmed(())"),
        "O15",
    ),
    # ── messages ─────────────────────────────────────────────────────────────────────────────────────
    _bug(
        "topic-stored-messages-are-sent-again",
        "messages that are in the closed ledger are not sent to the next one",
        SERIES,
        "TopicSeries._ended_ledger",
        Replace("range(end.entries - self._acknowledged)", "()"),
        "T5",
        "T7",
    ),
    _bug(
        "topic-new-messages-overtake",
        "messages that wait for a ledger are sent in their order",
        SERIES,
        "TopicSeries.add",
        Rewrite(
            "self.pending.append(entry)",
            "(self.pending.appendleft if self.state is SeriesState.CREATING else self.pending.append)(entry)",
        ),
        "T5",
    ),
    _bug(
        "topic-unknown-messages-fail-for-certain",
        "a message that may be in the topic is reported as unknown",
        SERIES,
        "TopicSeries._end",
        Rewrite("is_unknown = number < unknown", "is_unknown = False"),
        "T7",
    ),
    # ── the list as the fence ────────────────────────────────────────────────────────────────────────
    _bug(
        "topic-lost-answer-taken-as-failure",
        "a write without an answer is decided by what is there",
        CHANGE,
        "ListChange.written",
        Rewrite("self._lost = answer", "self.result = TopicFenced(self._topic)"),
        "O11",
        "O13",
        "O8",
    ),
    _bug(
        "topic-lost-answer-taken-as-success",
        "a write without an answer is decided by what is there",
        CHANGE,
        "ListChange.written",
        Rewrite("self._lost = answer", "self.result = (self._write.version or 0) + 1\nreturn []"),
        "T5",
        "O8",
        "O13",
    ),
    PlantedClusterBug(
        "topic-version-ignored",
        "a list that another owner has written is not overwritten",
        (
            EditAddress(
                CHANGE,
                "ListChange.written",
                Rewrite(
                    "self.result = TopicFenced(self._topic)",
                    "self._lost = Unknown('')\nreturn self._read('')",
                ),
            ),
            EditAddress(
                CHANGE,
                "ListChange.read",
                Rewrite(
                    "self.result = TopicFenced(self._topic)",
                    "self._write = WriteList(self._write.data, answer.stat.version)\nreturn [self._write]",
                ),
            ),
        ),
        frozenset({"T5", "O5", "O13", "O14"}),
        kind=TopicSchedule,
    ),
    # ── subscriptions and readers ────────────────────────────────────────────────────────────────────
    _bug(
        "topic-cursor-is-read-from-its-node-only",
        "a consumer begins with the last entry of the cursor's ledger",
        CURSOR,
        "CursorStore._open",
        Rewrite("entry = await _last_entry(...)", "entry = None"),
        "O16",
    ),
    _bug(
        "topic-cursor-takes-any-write-for-its-own",
        "after a lost answer the content of the node says which consumer has written it",
        CURSOR,
        "CursorStore._is_own",
        Rewrite("return ...", "return True"),
        "O16",
    ),
    _bug(
        "topic-reader-passes-what-is-acknowledged",
        "a reader shows only what is acknowledged of the ledger that is written",
        READER,
        "AsyncTopicReader._acknowledged",
        Rewrite("return ...", "return count + 1"),
        "O1",
    ),
    # ── retention ────────────────────────────────────────────────────────────────────────────────────
    _bug(
        "topic-cursors-hold-nothing",
        "a ledger stays until all cursors have passed it",
        POLICIES,
        "_is_passed",
        Rewrite("return ...", "return True"),
        "O14",
    ),
    _bug(
        "topic-cursor-before-the-last-entry-lets-a-ledger-go",
        "a cursor has passed a ledger with its last entry",
        POLICIES,
        "_is_passed",
        Replace("(ledger.entries or 0) - 1", "(ledger.entries or 0) - 2"),
        "O14",
    ),
    _bug(
        "topic-size-with-what-goes",
        "the limit of the size is for what would remain",
        POLICIES,
        "ledgers_to_trim",
        Drop("remaining -= one.size or 0"),
        "O14",
    ),
)
