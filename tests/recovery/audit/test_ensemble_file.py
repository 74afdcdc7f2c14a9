"""The file of ensembles: its content, and the errors for invalid ones."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from recovery.audit.model.ensemble import LedgerEnsembles, LedgerProgress, Segment
from recovery.audit.pipeline import ensemble_file
from storage.errors import InvalidConfig

TOLD: dict[str, Any] = {
    "stores": {"bk1": "/data/bk1", "bk2": "here/bk2", "bk3": "../bk3"},
    "ledgers": {
        "20": {
            "write_quorum": 2,
            "ack_quorum": 1,
            "last_entry": 4999,
            "segments": [
                {"first_entry": 0, "stores": ["bk1", "bk2", "bk3"]},
                {"first_entry": 1200, "stores": ["bk1", "bk3", "bk2"]},
            ],
        },
        "7": {"write_quorum": 2, "segments": [{"first_entry": 0, "stores": ["bk2", "bk1"]}]},
    },
}


def parsed(content: Any) -> ensemble_file.Replicas:
    return ensemble_file.parse(json.dumps(content), "replicas.json", Path("/etc/audit"))


def test_the_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    file.write_text(json.dumps(TOLD))
    replicas = ensemble_file.load(file)
    assert replicas.stores == {
        "bk1": "/data/bk1",
        "bk2": str(tmp_path / "here" / "bk2"),
        "bk3": str(tmp_path / "../bk3"),
    }
    first, second = replicas.ledgers
    assert first == LedgerEnsembles(7, 2, 2, (Segment(0, ("bk2", "bk1")),), None)
    changed = Segment(0, ("bk1", "bk2", "bk3")), Segment(1200, ("bk1", "bk3", "bk2"))
    assert second == LedgerEnsembles(20, 2, 1, changed, 4999)


def test_the_example_in_the_module_is_read() -> None:
    example = (ensemble_file.__doc__ or "").split("\n\n")[1]
    replicas = ensemble_file.parse(example, "replicas.json", Path("/x"))
    assert [one.ledger_id for one in replicas.ledgers] == [7]


def test_the_step_of_a_striped_ledger_is_the_size_of_its_ensemble() -> None:
    replicas = parsed(TOLD)
    assert ensemble_file.steps(replicas.ledgers) == {7: 1, 20: 3}
    assert replicas.steps() == {path: {7: 1, 20: 3} for path in replicas.stores.values()}


def test_entries_are_placed_as_bookkeeper_places_them() -> None:
    striped = parsed(TOLD).ledgers[1]
    places = [tuple(striped.places(striped.segments[0], entry)) for entry in range(4)]
    assert places == [("bk1", "bk2"), ("bk2", "bk3"), ("bk3", "bk1"), ("bk1", "bk2")]
    # The position depends on the entry's id, not on the segment's first entry.
    assert tuple(striped.places(striped.segments[1], 1201)) == ("bk3", "bk2")


def test_entries_before_the_last_segment_are_confirmed() -> None:
    assert LedgerProgress.least(parsed(TOLD).ledgers[1]) == LedgerProgress(1199, 1199)


LEDGER = "replicas.json: ledgers.20"
WRONG = [
    ("stores", None, "replicas.json: stores", "must be an object, not null"),
    ("stores.bk1", 5, "replicas.json: stores.bk1", "must be a path, not 5"),
    ("stores.bk3", "/etc/audit/here/bk2", "replicas.json: stores.bk2", "is the same directory as another"),
    ("stores.", "/x", "replicas.json: stores", "a store without a name"),
    ("more", 1, "replicas.json: more", "is unknown here; known are ledgers, stores"),
    ("ledgers.07", TOLD["ledgers"]["7"], "replicas.json: ledgers.07", "is not a ledger id"),
    ("ledgers.-1", {}, "replicas.json: ledgers.-1", "is not a ledger id"),
    (f"ledgers.{2**63}", {}, f"replicas.json: ledgers.{2**63}", "is not a ledger id"),
    ("ledgers.20", [], LEDGER, "must be an object, not []"),
    ("ledgers.20.quorum", 2, f"{LEDGER}.quorum", "is unknown here; known are ack_quorum, last_entry, segm"),
    ("ledgers.20.write_quorum", 4, f"{LEDGER}.write_quorum", "must be a whole number from 1 to 3, not 4"),
    (
        "ledgers.20.write_quorum",
        True,
        f"{LEDGER}.write_quorum",
        "must be a whole number from 1 to 3, not true",
    ),
    ("ledgers.20.ack_quorum", 3, f"{LEDGER}.ack_quorum", "must be a whole number from 1 to 2, not 3"),
    ("ledgers.20.last_entry", 1198, f"{LEDGER}.last_entry", "must be a whole number from 1199 to"),
    ("ledgers.20.last_entry", 1.5, f"{LEDGER}.last_entry", "not 1.5"),
    ("ledgers.20.segments", [], f"{LEDGER}.segments", "must be a list of at least one segment, not []"),
    ("ledgers.20.segments.0.first_entry", -1, f"{LEDGER}.segments[0].first_entry", "from 0 to"),
    (
        "ledgers.20.segments.1.first_entry",
        0,
        f"{LEDGER}.segments[1].first_entry",
        "must be after that of the segm",
    ),
    ("ledgers.20.segments.1.stores", ["bk1"], f"{LEDGER}.segments[1].stores", "must be 3, as in the first"),
    (
        "ledgers.20.segments.1.stores",
        "bk1",
        f"{LEDGER}.segments[1].stores",
        "must be a list of stores' names",
    ),
    ("ledgers.20.segments.1.stores.2", "bk9", f"{LEDGER}.segments[1].stores[2]", '"bk9" is not among the st'),
    ("ledgers.20.segments.1.stores.2", "bk1", f"{LEDGER}.segments[1].stores[2]", '"bk1" is in this ensemble'),
]


def put(content: Any, path: str, value: Any) -> None:
    *way, last = path.split(".")
    for key in way:
        content = content[int(key)] if isinstance(content, list) else content[key]
    content[int(last) if isinstance(content, list) else last] = value


@pytest.mark.parametrize(("path", "value", "name", "reason"), WRONG, ids=lambda one: str(one)[:40])
def test_an_invalid_field_is_named(path: str, value: Any, name: str, reason: str) -> None:
    content = deepcopy(TOLD)
    put(content, path, value)
    with pytest.raises(InvalidConfig) as caught:
        parsed(content)
    assert caught.value.name == name
    assert reason in caught.value.reason


@pytest.mark.parametrize("field", ["write_quorum", "segments"])
def test_a_missing_field_is_named(field: str) -> None:
    content = deepcopy(TOLD)
    del content["ledgers"]["7"][field]
    with pytest.raises(InvalidConfig, match=f"ledgers.7.{field}: is missing"):
        parsed(content)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "stores": {,}\n}', r"replicas.json:2:14: not JSON: "),
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ('{"stores": NaN}', "NaN is not a number"),
        ("[" * 100_000, "JSON that cannot be used here"),
        ("", "replicas.json:1:1: not JSON"),
    ],
)
def test_invalid_json_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        ensemble_file.parse(text, "replicas.json", Path())


def test_a_file_of_another_encoding_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "replicas.json"
    file.write_bytes(b'{"stores": "\xff"}')
    with pytest.raises(InvalidConfig, match="not UTF-8: byte 12"):
        ensemble_file.load(file)
