"""The generated damages, and the verdicts on damaged stores."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest

from recovery.crashlab.judge.damage_verdict import DamageVerdict, harmful_differences, verdict_on_damage
from recovery.crashlab.judge.oracles import OpenSucceedsOrNamed
from recovery.crashlab.judge.outcome import (
    Answered,
    Died,
    Hung,
    ObservedState,
    RecoveryRefused,
    UnreadableValue,
    refusal_of,
)
from recovery.crashlab.model.damage import Damage, DamageKind, damages
from recovery.crashlab.record.history import History, HistoryBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from recovery.crashlab.record.history import Value


def noise(size: int, seed: int = 1) -> bytes:
    return Random(seed).randbytes(size)


TREE = {
    "journal/1.txn": noise(9000, 1),
    "journal/2.txn": noise(5000, 2),
    "ledgers/0.log": noise(20000, 3),
    "ledgers/lastMark": noise(16, 4),
    "store.lock": b"1",
}
OLDER = {
    "journal/2.txn": [noise(4096, 5) + TREE["journal/2.txn"][4096:], noise(5000, 6)],
    "ledgers/lastMark": [noise(16, 7)],
}


def kind_of(path: str) -> str:
    if path.endswith(".lock"):
        return ""
    return path.rpartition(".")[2] if "." in path else "mark"


def header_and_crc(_kind: str, data: bytes) -> Iterable[tuple[str, int, int]]:
    return [("magic", 0, 4), ("crc", len(data) - 4, 4)]


def all_of(
    tree: Mapping[str, bytes] = TREE, count: int | None = 4000, what: DamageKind | None = None, seed: int = 1
) -> list[Damage]:
    found = damages(tree, OLDER, kind_of, seed=seed, count=count)
    return [one for one in found if what in (None, one.what)]


# ── one damage ─────────────────────────────────────────────────────────────────────────────────────────────

FILE = {"a.log": bytes(range(10)), "b.log": b"other"}


@pytest.mark.parametrize(
    ("damage", "after"),
    [
        (Damage("a.log", "log", DamageKind.FLIP, 3, bit=7), bytes([0, 1, 2, 131, 4, 5, 6, 7, 8, 9])),
        (
            Damage("a.log", "log", DamageKind.ZEROED, 2, 3, put=bytes(3)),
            bytes([0, 1, 0, 0, 0, 5, 6, 7, 8, 9]),
        ),
        (Damage("a.log", "log", DamageKind.MISDIRECTED, 8, 2, put=b"xy"), bytes(range(8)) + b"xy"),
        (Damage("a.log", "log", DamageKind.STALE_BLOCK, 0, 2, put=b"xy"), b"xy" + bytes(range(2, 10))),
        (Damage("a.log", "log", DamageKind.STALE_FILE, put=b"older and longer"), b"older and longer"),
        (Damage("a.log", "log", DamageKind.TRUNCATED, 4), bytes(range(4))),
        (Damage("a.log", "log", DamageKind.EMPTY), b""),
    ],
    ids=lambda one: one.what if isinstance(one, Damage) else "",
)
def test_a_damage_is_done_to_its_file_alone(damage: Damage, after: bytes) -> None:
    assert damage.apply(FILE) == {"a.log": after, "b.log": b"other"}
    assert FILE["a.log"] == bytes(range(10))


def test_a_missing_file_is_gone() -> None:
    assert Damage("a.log", "log", DamageKind.MISSING).apply(FILE) == {"b.log": b"other"}


# ── all damages ────────────────────────────────────────────────────────────────────────────────────────────


def test_every_damage_changes_something_and_no_two_have_the_same_effect() -> None:
    zeros = {"a.log": bytes(9000), "b.log": bytes(9000), "c.log": b"", "d.log": noise(600) + bytes(9000)}
    for tree in (TREE, zeros):
        results = [tuple(sorted(one.apply(tree).items())) for one in all_of(tree, 3000)]
        assert tuple(sorted(tree.items())) not in results
        assert len(set(results)) == len(results)


def test_the_same_seed_gives_the_same_and_another_one_others() -> None:
    assert all_of() == all_of()
    assert {one.offset for one in all_of(count=500, seed=2)} != {one.offset for one in all_of(count=500)}


def test_another_file_of_another_kind_changes_nothing_for_the_others() -> None:
    def of_logs(tree: Mapping[str, bytes]) -> list[Damage]:
        return [one for one in all_of(tree, 900) if one.kind == "log"][:200]

    assert set(of_logs(TREE)) == set(of_logs({**TREE, "z.zip": noise(50)}))


def test_any_prefix_is_spread_evenly_over_kinds_of_files_and_of_damage() -> None:
    for length in (8, 24, 50, 300):
        begun = all_of(count=length)
        by_kind = Counter(one.kind for one in begun)
        assert max(by_kind.values()) - min(by_kind.values()) <= 1
        for kind in by_kind:
            by_what = Counter(one.what for one in begun if one.kind == kind)
            assert max(by_what.values()) - by_what[DamageKind.FLIP] <= 2
            # A mark of 16 bytes can be truncated at 15 places only.
            assert by_what[DamageKind.TRUNCATED] >= min(by_what[DamageKind.FLIP] - 2, 15)


def test_a_very_short_run_damages_each_kind_of_file_differently() -> None:
    assert len({one.what for one in all_of(count=3)}) == 3


def test_a_short_run_has_tried_every_kind_of_damage_on_every_kind_of_file() -> None:
    tried = {(one.kind, one.what) for one in all_of(count=60)}
    everything = {(kind, what) for kind in ("txn", "log", "mark") for what in DamageKind}
    # There is one log, without an older version, and the mark's versions are smaller than any block.
    impossible = {
        ("log", DamageKind.STALE_BLOCK),
        ("log", DamageKind.STALE_FILE),
        ("mark", DamageKind.MISDIRECTED),
    }
    assert everything - tried <= impossible | {("mark", DamageKind.STALE_FILE)}


def test_a_file_without_a_kind_is_left_alone() -> None:
    assert "store.lock" not in {one.path for one in all_of()}


def test_a_small_file_loses_every_bit_once() -> None:
    flips = all_of({"lastMark": noise(16)}, None, DamageKind.FLIP)
    assert {(one.offset, one.bit) for one in flips} == {(byte, bit) for byte in range(16) for bit in range(8)}
    assert len(flips) == 128


def test_without_known_fields_flips_are_denser_at_the_start() -> None:
    offsets = [one.offset for one in all_of({"a.log": noise(20000)}, 2000, DamageKind.FLIP)][:200]
    first, second, last = (
        sum(lo <= at < hi for at in offsets) for lo, hi in ((0, 64), (64, 4096), (4096, 20000))
    )
    assert first > 10 < second
    assert last > 10
    assert first / 64 > 10 * second / 4032 > 10 * last / 15904


def test_flips_hit_every_field_and_the_gaps_between_fields() -> None:
    found = damages({"a.log": noise(20000)}, {}, kind_of, header_and_crc, count=200)
    flips = [one for one in found if one.what is DamageKind.FLIP]
    by_field = Counter(one.field for one in flips)
    assert set(by_field) == {"magic", "crc", ""}
    assert max(by_field.values()) - min(by_field.values()) <= 1
    assert all(one.offset < 4 for one in flips if one.field == "magic")
    assert all(one.offset >= 19996 for one in flips if one.field == "crc")
    assert all(4 <= one.offset < 19996 for one in flips if not one.field)


def test_fields_of_many_records_that_share_a_name_are_one_field() -> None:
    def records(_kind: str, data: bytes) -> Iterator[tuple[str, int, int]]:
        for at in range(0, len(data), 100):
            yield from (("length", at, 4), ("payload", at + 4, 96))

    found = damages({"a.log": noise(10000)}, {}, kind_of, records, count=400)
    flips = [one for one in found if one.what is DamageKind.FLIP]
    by_field = Counter(one.field for one in flips)
    assert abs(by_field["length"] - by_field["payload"]) <= 1
    assert len({one.offset // 100 for one in flips if one.field == "length"}) > 20


def test_a_field_that_the_file_does_not_have_is_no_field() -> None:
    found = list(damages({"a.log": noise(40)}, {}, kind_of, lambda *_: [("far", 38, 4), ("none", 3, 0)]))
    assert {one.field for one in found} == {""}


@pytest.mark.slow
def test_blocks_of_both_sizes_are_zeroed_everywhere_and_no_further_than_the_file_goes() -> None:
    zeroed = all_of({"a.log": noise(9000)}, None, DamageKind.ZEROED)
    assert {one.offset for one in zeroed if one.size == 4096} == {0, 4096}
    assert len([one for one in zeroed if one.size <= 512]) == 18
    assert all(one.offset + one.size <= 9000 for one in zeroed)


def test_misdirected_blocks_come_from_files_of_the_same_kind_only() -> None:
    misdirected = [one for one in all_of(what=DamageKind.MISDIRECTED) if one.path == "journal/1.txn"]
    sources = Counter(one.label.split(" from ")[1].split(" at ")[0] for one in misdirected[:40])
    assert set(sources) == {"journal/1.txn", "journal/2.txn"}
    assert abs(sources["journal/1.txn"] - sources["journal/2.txn"]) <= 4
    assert all(one.put in TREE["journal/1.txn"] or one.put in TREE["journal/2.txn"] for one in misdirected)


def test_older_versions_come_back_block_by_block_and_whole() -> None:
    found = [one for one in all_of() if one.path == "journal/2.txn"]
    whole = [one.put for one in found if one.what is DamageKind.STALE_FILE]
    assert sorted(whole) == sorted(OLDER["journal/2.txn"])
    blocks = [one for one in found if one.what is DamageKind.STALE_BLOCK]
    for one in blocks:
        versions = OLDER["journal/2.txn"]
        assert any(one.put == version[one.offset : one.offset + one.size] for version in versions)
    assert {one.offset for one in blocks if one.size == 4096} == {0}
    assert len(blocks) > 10


def test_files_are_truncated_at_half_at_blocks_and_at_other_places() -> None:
    ends = [one.offset for one in all_of({"a.log": noise(9000)}, 2000, DamageKind.TRUNCATED)]
    assert ends[:2] == [4500, 8999]
    assert {4096, 8192, 512, 1024, 8704} <= set(ends)
    assert len([at for at in ends if at % 512]) > 100
    assert 0 < min(ends) <= max(ends) < 9000


def test_files_are_truncated_inside_fields_and_before_them() -> None:
    found = damages({"a.log": noise(9000)}, {}, kind_of, lambda *_: [("seal", 7777, 100)], count=100)
    ends = {one.offset for one in found if one.what is DamageKind.TRUNCATED}
    assert {7777, 7827} <= ends


def test_each_file_is_empty_once_and_missing_once_and_an_empty_one_only_missing() -> None:
    tree = {"a.log": noise(100), "b.log": b""}
    assert [one.path for one in all_of(tree, None, DamageKind.EMPTY)] == ["a.log"]
    assert {one.path for one in all_of(tree, None, DamageKind.MISSING)} == {"a.log", "b.log"}
    assert {one.what for one in all_of(tree, None) if one.path == "b.log"} == {DamageKind.MISSING}


def test_a_huge_file_of_zeros_comes_to_an_end() -> None:
    blocks = [
        one
        for one in islice(damages({"a.log": bytes(1 << 23)}, {}, kind_of), 3000)
        if one.what in (DamageKind.ZEROED, DamageKind.MISDIRECTED)
    ]
    assert blocks == []


def test_a_damage_is_described_in_one_line() -> None:
    lines = {one.what: str(one) for one in all_of(count=60)}
    assert lines[DamageKind.MISSING].endswith(": missing")
    assert all("\n" not in line for line in lines.values())
    flip = Damage("a.log", "log", DamageKind.FLIP, 3, 1, "bit 2 of byte 3", "crc", 2)
    assert str(flip) == "a.log: flip, bit 2 of byte 3 in crc"


# ── verdicts ───────────────────────────────────────────────────────────────────────────────────────────────

BEFORE = ObservedState({(1, 0): b"a", (1, 1): b"b", (2, 0): b"c"}, frozenset({1}), {1: 5})


def shown(
    entries: dict[tuple[Value, ...], Value | UnreadableValue] | None = None,
    fenced: frozenset[Value] = BEFORE.fenced,
    confirmed: dict[Value, int] | None = None,
    without: tuple[Value, ...] = (),
) -> Answered:
    merged = {**BEFORE.entries, **(entries or {})}
    merged.pop(without, None)
    return Answered(ObservedState(merged, fenced, BEFORE.confirmed if confirmed is None else confirmed))


def history(*lines: str) -> History:
    register = HistoryBuilder()
    for line in lines:
        register.take(line.encode())
    return register.history()


SILENT = {
    "an entry is gone": (shown(without=(1, 1)), "LOST"),
    "an entry has another value": (shown({(1, 1): b"x"}), "ALTERED"),
    "an entry is there that was not": (shown({(9, 9): b"x"}), "FABRICATED"),
    "a fence is gone": (shown(fenced=frozenset()), "UNFENCED"),
    "a fence is there that was not": (shown(fenced=frozenset({1, 2})), "FENCED"),
    "the confirmed went back": (shown(confirmed={1: 4}), "WENT-BACK"),
    "the confirmed is forgotten": (shown(confirmed={}), "WENT-BACK"),
    "the confirmed ran ahead": (shown(confirmed={1: 6}), "FABRICATED"),
    "another key is unreadable": (shown({(9, 1): UnreadableValue()}, without=(1, 1)), "LOST"),
    "a whole stream is unreadable, and yet shows a wrong value": (
        shown({(1,): UnreadableValue(), (1, 1): b"x"}),
        "ALTERED",
    ),
    "a whole stream is unreadable, and yet confirmed too far": (
        shown({(1,): UnreadableValue()}, confirmed={1: 6}),
        "FABRICATED",
    ),
    "everything is gone": (Answered(ObservedState()), "LOST"),
    "no answer that can be read": (Answered(None), "ALTERED"),
}


@pytest.mark.parametrize("case", SILENT)
def test_an_unreported_loss_or_change_is_silent(case: str) -> None:
    outcome, kind = SILENT[case]
    assert verdict_on_damage(BEFORE, outcome) is DamageVerdict.SILENT
    assert next(harmful_differences(BEFORE, outcome.answer)).kind == kind
    if isinstance(outcome.answer, ObservedState):
        noted = replace(outcome.answer, notes=("started in 3 ms", "mended"))
        assert verdict_on_damage(BEFORE, Answered(noted), damaged="journal/1.txn") is DamageVerdict.SILENT


def noted(*notes: str, answer: Answered | None = None) -> Answered:
    what = (answer or shown()).answer
    assert isinstance(what, ObservedState)
    return Answered(replace(what, notes=notes))


def test_an_unchanged_state_is_repaired_only_if_a_note_names_the_damaged_file() -> None:
    file = "ledgers/index/data.mdb"
    assert verdict_on_damage(BEFORE, noted(), damaged=file) is DamageVerdict.HARMLESS
    assert verdict_on_damage(BEFORE, noted("started in 3 ms"), damaged=file) is DamageVerdict.HARMLESS
    assert verdict_on_damage(BEFORE, noted("data.mdb: made again"), damaged=file) is DamageVerdict.REPAIRED
    assert verdict_on_damage(
        noted("data.mdb: made again").answer, noted("data.mdb: made again"), damaged=file
    ) is (DamageVerdict.HARMLESS)


@pytest.mark.parametrize(
    ("note", "verdict"),
    [
        ("started in 3 ms", DamageVerdict.SILENT),
        ("11.txn: cut off at 4096", DamageVerdict.SILENT),
        ("1.txn.draft removed", DamageVerdict.SILENT),
        ("other/1.txn: cut off at 4096", DamageVerdict.SILENT),
        ("1.txn: cut off at 4096", DamageVerdict.REPORTED),
        ("cut off at 4096 of /tmp/x/journal/1.txn.", DamageVerdict.REPORTED),
        ("lost (1, 1)", DamageVerdict.REPORTED),
        ("lost (1, 10)", DamageVerdict.SILENT),
        ("lost (1, 0)", DamageVerdict.SILENT),
    ],
)
def test_a_loss_is_reported_only_by_a_note_that_names_the_damaged_file_or_the_key(
    note: str, verdict: DamageVerdict
) -> None:
    outcome = noted(note, answer=shown(without=(1, 1)))
    assert verdict_on_damage(BEFORE, outcome, damaged="journal/1.txn") is verdict


def test_every_lost_key_must_be_named_and_a_lone_number_is_no_name() -> None:
    before = ObservedState({("a",): b"1", ("b",): b"2", (3,): b"3"})

    def after(entries: dict[tuple[Value, ...], Value | UnreadableValue], *notes: str) -> Answered:
        return Answered(ObservedState(entries, notes=notes))

    three: dict[tuple[Value, ...], Value | UnreadableValue] = {(3,): b"3"}
    assert verdict_on_damage(before, after(three, "a is lost"), damaged="x.log") is DamageVerdict.SILENT
    assert (
        verdict_on_damage(before, after(three, "a is lost", "lost: 'b'"), damaged="x.log")
        is DamageVerdict.REPORTED
    )
    two: dict[tuple[Value, ...], Value | UnreadableValue] = {("a",): b"1", ("b",): b"2"}
    assert verdict_on_damage(before, after(two, "started in 3 ms"), damaged="x.log") is DamageVerdict.SILENT


@pytest.mark.parametrize("case", ["an entry has another value", "an entry is there that was not"])
def test_no_note_excuses_what_is_shown_and_wrong(case: str) -> None:
    outcome, _ = SILENT[case]
    assert (
        verdict_on_damage(BEFORE, noted("1.txn: cut off", answer=outcome), damaged="1.txn")
        is DamageVerdict.SILENT
    )


@pytest.mark.parametrize(
    "outcome",
    [
        shown({(1, 1): UnreadableValue("crc")}),
        shown({(1,): UnreadableValue("stream 1")}, without=(1, 1)),
        shown({(1,): UnreadableValue()}, fenced=frozenset(), confirmed={}),
        Answered(ObservedState({(): UnreadableValue("all of it")})),
    ],
)
def test_a_changed_value_reported_as_unreadable_is_detected(outcome: Answered) -> None:
    assert verdict_on_damage(BEFORE, outcome) is DamageVerdict.DETECTED


def test_values_that_were_unreadable_before_the_damage_do_not_count() -> None:
    before = ObservedState({(1, 0): UnreadableValue("by the crash")})
    assert (
        verdict_on_damage(before, Answered(ObservedState({(1, 0): UnreadableValue("still")})))
        is DamageVerdict.HARMLESS
    )


def test_a_mapping_is_read_as_entries_and_other_answers_are_compared() -> None:
    assert verdict_on_damage({"k": 1}, Answered({("k",): 1})) is DamageVerdict.HARMLESS
    assert verdict_on_damage({"k": 1}, Answered({})) is DamageVerdict.SILENT
    assert verdict_on_damage(["k"], Answered(["k"])) is DamageVerdict.HARMLESS
    assert verdict_on_damage(["k"], Answered([])) is DamageVerdict.SILENT


class Named(Exception):
    pass


class Kind(Named):
    pass


def test_a_refusal_counts_when_it_is_named_or_derived_from_what_is() -> None:
    rule = OpenSucceedsOrNamed((Named,), frozenset({3}))
    assert verdict_on_damage(BEFORE, refusal_of(Kind("torn")), rule=rule) is DamageVerdict.DETECTED
    assert verdict_on_damage(BEFORE, refusal_of(IndexError("7")), rule=rule) is DamageVerdict.UNNAMED
    assert verdict_on_damage(BEFORE, refusal_of(IndexError("7"))) is DamageVerdict.DETECTED
    assert verdict_on_damage(BEFORE, refusal_of(SystemExit(1))) is DamageVerdict.UNNAMED
    assert verdict_on_damage(BEFORE, RecoveryRefused((), "bad file", 3), rule=rule) is DamageVerdict.DETECTED
    assert verdict_on_damage(BEFORE, RecoveryRefused((), "", 4), rule=rule) is DamageVerdict.UNNAMED


def test_signals_and_hangs_have_verdicts_of_their_own() -> None:
    assert verdict_on_damage(BEFORE, Died(7)) is DamageVerdict.SIGNAL
    assert verdict_on_damage(BEFORE, Hung()) is DamageVerdict.HANG


def test_good_verdicts_are_those_without_wrong_or_unreported_data() -> None:
    good = [DamageVerdict.HARMLESS, DamageVerdict.REPAIRED, DamageVerdict.DETECTED, DamageVerdict.REPORTED]
    assert [one for one in DamageVerdict if one.is_good] == good


# Unacknowledged data may be gone.

ADD = '["invoke", 1, "add", 1, 0, {"hex": "61"}]'
ADDED = '["ack", 1]'


def test_an_unacknowledged_add_may_be_gone() -> None:
    before = ObservedState({(1, 0): b"a"})
    assert verdict_on_damage(before, Answered(ObservedState()), history(ADD)) is DamageVerdict.HARMLESS
    assert verdict_on_damage(before, Answered(ObservedState()), history(ADD, ADDED)) is DamageVerdict.SILENT
    assert (
        verdict_on_damage(before, Answered(ObservedState({(1, 0): b"b"})), history(ADD))
        is DamageVerdict.SILENT
    )


def test_one_of_several_unacknowledged_adds_may_be_gone() -> None:
    add_all = '["invoke", 1, "add_all", 1, [[[1, 0], "a"], [[1, 1], "b"]]]'
    before, after = ObservedState({(1, 0): "a", (1, 1): "b"}), Answered(ObservedState({(1, 0): "a"}))
    assert verdict_on_damage(before, after, history(add_all)) is DamageVerdict.HARMLESS
    assert verdict_on_damage(before, after, history(add_all, ADDED)) is DamageVerdict.SILENT


def test_a_delete_may_be_undone_unless_it_was_acknowledged() -> None:
    delete = '["invoke", 2, "delete", 1]'
    back = Answered(ObservedState({(1, 0): b"a"}))
    assert verdict_on_damage(ObservedState(), back, history(ADD, ADDED, delete)) is DamageVerdict.HARMLESS
    assert (
        verdict_on_damage(ObservedState(), back, history(ADD, ADDED, delete, '["ack", 2]'))
        is DamageVerdict.SILENT
    )


def test_an_older_value_may_be_back_unless_the_newer_was_acknowledged() -> None:
    newer = '["invoke", 2, "add", 1, 0, "b"]'
    before, back = ObservedState({(1, 0): "b"}), Answered(ObservedState({(1, 0): b"a"}))
    assert verdict_on_damage(before, back, history(ADD, ADDED, newer)) is DamageVerdict.HARMLESS
    assert verdict_on_damage(before, back, history(ADD, ADDED, newer, '["ack", 2]')) is DamageVerdict.SILENT


def test_an_unacknowledged_fence_or_confirmation_may_be_gone() -> None:
    facts = ('["invoke", 1, "fence", 1]', '["invoke", 2, "confirm", 1, 5]')
    before, after = ObservedState(fenced=frozenset({1}), confirmed={1: 5}), Answered(ObservedState())
    assert verdict_on_damage(before, after, history(*facts)) is DamageVerdict.HARMLESS
    assert verdict_on_damage(before, after, history(*facts, '["ack", 1]')) is DamageVerdict.SILENT
    assert verdict_on_damage(before, after, history(*facts, '["ack", 2]')) is DamageVerdict.SILENT


def test_facts_that_no_operation_names_count_as_acknowledged() -> None:
    other = history('["invoke", 1, "put", "k", "v"]')
    assert (
        verdict_on_damage(ObservedState({("k",): "v"}), Answered(ObservedState()), other)
        is DamageVerdict.SILENT
    )
    assert verdict_on_damage(BEFORE, shown(fenced=frozenset()), other) is DamageVerdict.SILENT


# ── both together: with checksums no damage is silent, without them some is ─────────────────────────────────

_RECORD = struct.Struct("<II")


def sealed(payloads: list[bytes]) -> bytes:
    body = b"".join(struct.pack("<I", len(one)) + one for one in payloads)
    return _RECORD.pack(zlib.crc32(body), len(body)) + body


def recover(data: bytes | None, *, checks: bool) -> Answered | RecoveryRefused:
    try:
        assert data is not None, "missing"
        crc, size = _RECORD.unpack_from(data)
        body = data[_RECORD.size :]
        assert not checks or (len(body) == size and zlib.crc32(body) == crc), "rot"
        return Answered(dict(enumerate(_payloads(body))))
    except (AssertionError, struct.error) as error:
        return refusal_of(error)


def _payloads(body: bytes) -> Iterator[bytes]:
    at = 0
    while at + 4 <= len(body):
        (size,) = struct.unpack_from("<I", body, at)
        yield body[at + 4 : at + 4 + size]
        at += 4 + size


def test_the_rot_that_a_checksum_finds_is_silent_without_one() -> None:
    tree = {"a.log": sealed([noise(300, number) for number in range(20)])}
    table: dict[bool, Counter[DamageVerdict]] = {True: Counter(), False: Counter()}
    for checks, verdicts in table.items():
        before = recover(tree["a.log"], checks=checks)
        assert isinstance(before, Answered)
        for damage in damages(tree, {}, kind_of, count=300):
            after = recover(damage.apply(tree).get("a.log"), checks=checks)
            verdicts[verdict_on_damage(before.answer, after)] += 1
    assert table[True] == {DamageVerdict.DETECTED: 300}
    assert table[False][DamageVerdict.SILENT] > 200


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (shown({(1, 1): UnreadableValue()}), "showed 3 entries, 1 unreadable"),
        (Answered(7), "answered 7"),
        (refusal_of(Kind("torn\nat 7")), "refused with Kind: torn at 7"),
        (RecoveryRefused((), "bad file", 3), "refused with exit code 3: bad file"),
        (Died(7), "died of SIGBUS"),
        (Died(99), "died of signal 99"),
        (Hung(), "hung"),
    ],
)
def test_an_outcome_is_described_in_one_line(outcome: object, line: str) -> None:
    assert str(outcome) == line


def test_flips_that_follow_one_another_are_far_apart() -> None:
    flips = [one.offset for one in all_of({"lastMark": noise(16)}, None, DamageKind.FLIP)]
    assert all(abs(a - b) > 2 for a, b in pairwise(flips))
