"""Numbers, sizes and names are formatted so that people can read them."""

from __future__ import annotations

from recovery.report import formatting


def test_numbers_are_formatted_for_people() -> None:
    assert formatting.counted(1, "entry") == "1 entry"
    assert formatting.counted(1200, "entry") == "1,200 entries"
    assert [formatting.duration(seconds) for seconds in (1.25, 600, 36_000)] == [
        "1.2 s",
        "10.0 min",
        "10.0 h",
    ]
    assert [formatting.rate(number) for number in (7.46, 212.4)] == ["7.5", "212"]


def test_sizes_take_the_unit_that_fits() -> None:
    sizes = [formatting.size(count) for count in (0, 1, 1023, 4096, 3 << 20, 61 << 30, 5 << 40, 7000 << 40)]
    assert sizes[:4] == ["0 bytes", "1 byte", "1,023 bytes", "4.0 KiB"]
    assert sizes[4:] == ["3.0 MiB", "61.0 GiB", "5.0 TiB", "7,000.0 TiB"]


def test_a_long_name_keeps_both_its_ends() -> None:
    assert formatting.shortened("0000000000000001.txn", 12) == "0000…001.txn"
    assert formatting.shortened("short", 12) == "short"


def test_changes_that_the_recorder_misses_are_shown() -> None:
    assert formatting.line("a\u202eb\n\x1b\udcff") == "a\\u202eb\\n\\x1b\\udcff"
