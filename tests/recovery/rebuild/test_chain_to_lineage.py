"""The chain of entry logs after logs were removed: it ends at the logs that the lineage names."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from entry_log_builder import Log
from simulated_directories import STORE_ID, SimulatedDirectories, entries, ids

from recovery.rebuild.entry_log_chain import EntryLogChain, follow_chain
from storage.disk import filenames
from storage.entry.position import LogPosition
from storage.entrylog import format as entrylog_format
from storage.entrylog.format import Origin
from storage.errors import CorruptionError, NewerFormat


def site_of(count: int) -> SimulatedDirectories:
    """So many logs, each with one entry of ledger 1 that has the number of the log."""
    site = SimulatedDirectories()
    for number in range(count):
        add_log(site, number)
    return site


def add_log(site: SimulatedDirectories, number: int) -> LogPosition:
    site.new_run()
    return site.checkpoint(*entries(1, [number]))


def chain_of(site: SimulatedDirectories) -> EntryLogChain:
    assert site.mark.trailer is not None
    return follow_chain(site.ledgers, site.mark.trailer, STORE_ID)


def indexed(site: SimulatedDirectories) -> list[int]:
    return ids(site.placed(site.rebuilt().index), 1)


def refusal(site: SimulatedDirectories) -> CorruptionError:
    with pytest.raises(CorruptionError) as caught:
        chain_of(site)
    return caught.value


# ── the chain ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("removed", [(0,), (1,), (2,), (0, 1, 2), (1, 2), (0, 2)])
def test_an_index_that_is_lost_after_removals_is_made_again_as_it_was(removed: tuple[int, ...]) -> None:
    site = site_of(4)
    site.remove_logs(*removed)
    rebuilt = site.rebuilt()
    assert rebuilt.index.state() == site.state
    assert rebuilt.findings == ()
    assert ids(site.placed(rebuilt.index), 1) == [one for one in range(4) if one not in removed]


def test_logs_that_were_begun_after_a_removal_are_found_through_their_headers() -> None:
    site = site_of(3)
    site.remove_logs(1)
    add_log(site, 3)
    add_log(site, 4)
    assert chain_of(site).logs == tuple(site.state.log_ends.items())
    assert indexed(site) == [0, 2, 3, 4]


def test_several_removals_one_after_another_need_only_the_last_lineage() -> None:
    site = site_of(4)
    site.remove_logs(1)
    add_log(site, 4)
    site.remove_logs(0, 3)
    assert indexed(site) == [2, 4]
    assert site.rebuilt().index.state() == site.state


def test_the_log_in_which_writing_went_on_after_a_removal_counts_up_to_its_present_end() -> None:
    site = site_of(3)
    site.remove_logs(1)
    site.checkpoint(*entries(1, [7]))  # in the log that the lineage names with its earlier end
    assert indexed(site) == [0, 2, 7]
    add_log(site, 8)  # and its header names the present end of the log before it
    assert indexed(site) == [0, 2, 7, 8]


def test_a_lineage_with_a_smaller_end_than_the_next_log_notes_loses_no_entry() -> None:
    site = site_of(3)
    site.remove_logs(1)
    small = [LogPosition(one, end - 1) for one, end in site.state.log_ends.items()]
    add_log(site, 3)
    site.put_lineage(*small, LogPosition(3, site.state.log_ends[3]), generation=site.state.generation)
    assert indexed(site) == [0, 2, 3]
    assert dict(chain_of(site).logs)[2] == site.state.log_ends[2]


def test_bytes_after_the_end_in_the_lineage_do_not_count() -> None:
    site = site_of(2)
    site.remove_logs(0)
    site.write(*entries(1, [7]))
    assert indexed(site) == [1]


# ── logs that are being removed ──────────────────────────────────────────────────────────────────────────


def test_a_removed_log_that_is_still_there_does_not_count() -> None:
    site = site_of(3)
    site.commit_removal(1)
    assert "1.log" in site.ledgers.names()
    assert indexed(site) == [0, 2]
    assert chain_of(site).gone == (1,)


def test_the_new_index_knows_the_removed_logs_of_which_a_power_cut_may_bring_one_back() -> None:
    site = site_of(3)
    site.commit_removal(1)
    assert site.rebuilt().index.state().gone == (1,)


def test_a_log_that_the_lineage_leaves_out_does_not_count_although_the_lost_index_had_it() -> None:
    site = site_of(3)
    known = site.state
    site.commit_removal(1)
    site.state = known  # the power failed before the index and the mark
    assert indexed(site) == [0, 2]


# ── logs that were only read ─────────────────────────────────────────────────────────────────────────────


def imported(*logs: int) -> SimulatedDirectories:
    """A bookie's logs with three entries each, imported, and then a log of ours."""
    site = SimulatedDirectories()
    for log_id in logs:
        site.put_log(log_id, Log().add(*entries(1, range(3 * log_id, 3 * log_id + 3))))
    site.put_mark()
    site.state = site.imported().index.state()
    add_log(site, 100)
    return site


def test_logs_that_were_only_read_count_as_far_as_they_are_sound() -> None:
    site = imported(0, 1, 2)
    site.remove_logs(1)
    assert indexed(site) == [0, 1, 2, 6, 7, 8, 100]
    assert site.rebuilt().index.state().log_ends.keys() == {0, 2, 3}


def test_a_bookie_s_log_that_is_being_removed_does_not_count() -> None:
    site = imported(0, 1, 2)
    site.commit_removal(1)
    assert indexed(site) == [0, 1, 2, 6, 7, 8, 100]


def test_the_last_bookie_s_log_is_removed_too_when_a_log_of_ours_has_followed() -> None:
    site = imported(0, 1, 2)
    site.remove_logs(2)
    assert indexed(site) == [*range(6), 100]


def test_beside_a_lineage_that_is_older_than_the_import_all_logs_count_but_those_that_it_calls_gone() -> None:
    site = site_of(3)
    removed = site.log(1)
    site.remove_logs(1)
    with site.ledgers.open(filenames.LINEAGE) as file:
        older = file.read(0, file.size())
    site.put_log(7, Log().add(*entries(1, range(20, 23))))
    site.put_mark()
    site.state = site.imported().index.state()
    add_log(site, 100)
    site.put(site.ledgers, filenames.LINEAGE, older)
    site.put_log(1, removed)  # a power cut has brought it back
    chain = chain_of(site)
    assert [log_id for log_id, _ in chain.logs] == [0, 2, 7, 8]
    assert chain.gone == (1,)


def test_the_end_of_a_log_that_was_only_read_is_the_one_in_the_next_header() -> None:
    site = site_of(2)
    site.write(*entries(1, [7]))  # after the end of log 1
    add_log(site, 3)
    site.put_lineage(*(LogPosition(one, 0) for one in site.state.log_ends))
    assert indexed(site) == [0, 1, 3]


# ── a lineage that does not fit ──────────────────────────────────────────────────────────────────────────


def test_without_the_lineage_a_removed_log_is_missed() -> None:
    site = site_of(3)
    site.remove_logs(1)
    site.ledgers.remove(filenames.LINEAGE)
    found = refusal(site)
    assert (found.file, found.finding) == ("1.log", "ELG-005")


def test_a_lineage_of_a_later_generation_than_the_mark_shows_that_the_mark_is_an_older_copy() -> None:
    site = site_of(3)
    old = site.state
    add_log(site, 3)
    site.remove_logs(1)
    site.state = old
    found = refusal(site)
    assert (found.file, found.finding) == ("lastMark", "MRK-003")
    assert "older copy" in found.reason


def test_a_lineage_of_the_generation_of_the_mark_is_no_older_copy() -> None:
    site = site_of(3)
    site.put_lineage()
    assert chain_of(site).logs == tuple(site.state.log_ends.items())


@pytest.mark.parametrize("log_id", [0, 2, 3])
def test_a_log_that_the_lineage_names_and_that_is_missing_is_named(log_id: int) -> None:
    site = site_of(4)
    site.remove_logs(1)
    site.ledgers.remove(filenames.entry_log(log_id))
    found = refusal(site)
    assert (found.file, found.finding) == (f"{log_id}.log", "ELG-005")


@pytest.mark.parametrize("log_id", [0, 2, 3])
def test_a_log_that_is_shorter_than_the_lineage_says_is_named(log_id: int) -> None:
    site = site_of(4)
    site.remove_logs(1)
    site.put_log(log_id, site.log(log_id)[: site.state.log_ends[log_id] - 1])
    found = refusal(site)
    assert (found.file, found.finding) == (f"{log_id}.log", "ELG-005")


def test_another_log_in_the_place_of_one_that_the_lineage_names_is_noticed() -> None:
    site = site_of(4)
    site.remove_logs(1)
    for origin in (Origin(b"another store id", 1, None), Origin(STORE_ID, 99, None), None):
        data = site.log(0)
        if origin is None:
            other = bytes(Log().add(*entries(1, range(300))).file())
        else:
            header = entrylog_format.encode_header(origin)
            other = header + data[len(header) :]
        site.put_log(0, other)
        assert refusal(site).reason == "another log stands in its place"
        site.put_log(0, data)


def test_a_lineage_of_a_newer_version_is_left_alone() -> None:
    site = site_of(2)
    site.put_lineage()
    with site.ledgers.open(filenames.LINEAGE) as file:
        data = bytearray(file.read(0, file.size()))
    data[7] += 1
    data[-4:] = crc32c(data[:-4]).to_bytes(4, "big")
    site.put(site.ledgers, filenames.LINEAGE, bytes(data))
    with pytest.raises(NewerFormat, match="lineage"):
        chain_of(site)


# ── a damaged lineage ────────────────────────────────────────────────────────────────────────────────────


def damage_lineage(site: SimulatedDirectories) -> None:
    site.put(site.ledgers, filenames.LINEAGE, b"LSLN, and then nothing that makes sense")


def test_with_a_damaged_lineage_every_log_is_read_and_the_store_is_not_whole() -> None:
    site = site_of(4)
    site.remove_logs(1)
    damage_lineage(site)
    rebuilt = site.rebuilt()
    assert ids(site.placed(rebuilt.index), 1) == [0, 2, 3]
    assert not rebuilt.index.state().is_whole
    [finding] = rebuilt.findings
    assert finding.startswith("ELG-008 lineage@0: ")
    assert rebuilt.index.state().log_ends.keys() == {0, 2, 3}


def test_with_a_damaged_lineage_headers_are_followed_back_to_a_log_that_is_not_there() -> None:
    site = site_of(4)
    site.remove_logs(1)
    damage_lineage(site)
    chain = chain_of(site)
    assert chain.logs == ((0, None), *[(one, site.state.log_ends[one]) for one in (2, 3)])
    assert not chain.is_certain


def test_with_a_damaged_lineage_a_bookie_s_logs_are_read_too() -> None:
    site = imported(0, 1, 2)
    site.remove_logs(2)
    damage_lineage(site)
    assert indexed(site) == [*range(6), 100]


def test_with_a_damaged_lineage_a_log_that_a_later_checkpoint_began_does_not_count() -> None:
    site = site_of(3)
    site.remove_logs(1)
    damage_lineage(site)
    known = site.state
    add_log(site, 9)
    site.state = known
    assert indexed(site) == [0, 2]


# ── a damaged header ─────────────────────────────────────────────────────────────────────────────────────


def test_a_damaged_header_in_a_log_that_the_lineage_names_loses_nothing() -> None:
    site = site_of(4)
    site.remove_logs(1)
    site.flip(2, 60)
    rebuilt = site.rebuilt()
    assert rebuilt.index.state() == site.state
    assert [one[:15] for one in rebuilt.findings] == ["ELG-001 2.log@0"]


def test_beside_a_damaged_header_the_logs_of_the_lineage_count_and_those_begun_since() -> None:
    site = site_of(4)
    site.commit_removal(1)
    site.checkpoint(*entries(1, [7]))  # the last log of the lineage has grown
    for number in (10, 11, 12):
        add_log(site, number)
    for damaged in (5, 4):
        site.flip(damaged, 60)
        rebuilt = site.rebuilt()
        assert ids(site.placed(rebuilt.index), 1) == [0, 2, 3, 7, 10, 11, 12]
        assert not rebuilt.index.state().is_whole
        assert rebuilt.index.state().log_ends.keys() == {0, 2, 3, 4, 5, 6}


def test_beside_a_damaged_header_the_grown_last_log_of_the_lineage_is_read_as_far_as_it_is_sound() -> None:
    site = site_of(3)
    site.remove_logs(1)
    site.checkpoint(*entries(1, [7]))
    add_log(site, 10)
    site.flip(3, 60)  # only this header names the present end of the log before it
    assert indexed(site) == [0, 2, 7, 10]


def test_beside_a_damaged_header_a_leftover_from_before_the_lineage_does_not_count() -> None:
    site = site_of(3)
    leftover = site.log(1)
    site.remove_logs(1)
    add_log(site, 10)
    add_log(site, 11)
    site.put_log(9, leftover)
    site.flip(4, 60)
    assert indexed(site) == [0, 2, 10, 11]
