"""The ends of ledgers: what is handed out, settled, and taken back."""

from __future__ import annotations

from storage.codec import entry as entry_codec
from storage.codec import record as record_codec
from storage.codec.digest import digester
from storage.entry import NO_ENTRY, DigestType, Entry
from storage.tail import EMPTY, LedgerEnd, Tail, Tails

CRC32C = digester(DigestType.CRC32C)


def entries(records: object) -> list[Entry]:
    assert isinstance(records, list)
    found = [entry_codec.decode(record_codec.entry_bytes(record), CRC32C) for record in records]
    assert all(isinstance(one, Entry) for one in found)
    return found  # type: ignore[return-value]


def entry(entry_id: int, length: int) -> Entry:
    return Entry(7, entry_id, NO_ENTRY, length, b"xy")


def test_ids_and_lengths_go_on_over_what_is_not_settled_yet() -> None:
    tail = Tail(7, EMPTY)
    first, second = tail.append([b"abc", b""]), tail.append([b"de"])
    assert entries([*first.records, *second.records]) == [
        Entry(7, 0, -1, 3, b"abc"),
        Entry(7, 1, -1, 3, b""),
        Entry(7, 2, -1, 5, b"de"),
    ]
    assert (first.first_id, first.last_id, second.first_id) == (0, 1, 2)
    assert first.size == sum(map(len, first.records))


def test_only_what_is_settled_counts_as_confirmed() -> None:
    tail = Tail(7, EMPTY)
    run = tail.append([b"abc"])
    assert entries(tail.append([b"d"]).records)[0].last_add_confirmed == NO_ENTRY
    tail.settle(run)
    assert entries(tail.append([b"e"]).records)[0].last_add_confirmed == 0


def test_what_is_taken_back_is_handed_out_again() -> None:
    tail = Tail(7, LedgerEnd(4, 100))
    tail.append([b"abc", b"d"])
    tail.hand_back()
    assert entries(tail.append([b"e"]).records) == [Entry(7, 5, 4, 101, b"e")]


def test_what_is_appended_goes_behind_the_largest_id_that_was_placed() -> None:
    tail = Tail(7, EMPTY)
    far = tail.place(entry(9, 50))
    tail.place(entry(3, 20))
    assert entries(tail.append([b"e"]).records) == [Entry(7, 10, -1, 51, b"e")]
    tail.settle(far)
    assert tail.end == LedgerEnd(9, 50)


def test_what_is_appended_goes_on_from_the_newest_copy_of_the_last_entry() -> None:
    tail = Tail(7, LedgerEnd(9, 50))
    tail.place(entry(9, 60))
    assert entries(tail.append([b"e"]).records) == [Entry(7, 10, 9, 61, b"e")]


def test_the_end_never_goes_back() -> None:
    tail = Tail(7, EMPTY)
    tail.settle(tail.place(entry(9, 50)))
    tail.settle(tail.place(entry(3, 20)))
    assert tail.end == LedgerEnd(9, 50)
    tail.settle(tail.place(entry(9, 60)))
    assert tail.end == LedgerEnd(9, 60)


def test_a_tail_is_looked_for_once_and_is_the_same_for_everybody() -> None:
    asked: list[int] = []

    def find(ledger_id: int) -> LedgerEnd:
        asked.append(ledger_id)
        return LedgerEnd(4, 100)

    tails = Tails(find)
    assert tails.known(7) is None
    tail = tails.of(7)
    assert tails.of(7) is tail is tails.known(7)
    assert asked == [7]
    tail.append([b"abc"])
    tails.hand_back()
    assert entries(tail.append([b"e"]).records)[0].entry_id == 5
