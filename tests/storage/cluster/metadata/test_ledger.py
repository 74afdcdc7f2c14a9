"""The metadata of ledgers: BookKeeper's own bytes, random ones, changes, and damage."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fixtures import FIXTURES
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_examples import ledger_metadata

from storage import DigestType
from storage.cluster.metadata import ledger
from storage.cluster.metadata.ledger import (
    ClusterLedgerMetadata,
    ClusterLedgerState,
    CustomField,
    LedgerSegment,
)
from storage.cluster.wire import protobuf
from storage.cluster.wire.protobuf import Malformed

if TYPE_CHECKING:
    from pathlib import Path

GOLDEN = sorted((FIXTURES / "wire").glob("ledgermeta-*.bin"))
FIRST = ("127.0.0.1:3181", "127.0.0.1:3182", "127.0.0.1:3183")
SECOND = ("127.0.0.1:3181", "127.0.0.1:3184", "127.0.0.1:3183")


def decoded(data: bytes) -> ClusterLedgerMetadata:
    found = ledger.decode(data)
    assert isinstance(found, ClusterLedgerMetadata), found
    return found


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_bookkeeper_s_metadata_is_decoded_and_encoded_to_the_same_bytes(path: Path) -> None:
    assert len(GOLDEN) == 11
    data = path.read_bytes()
    assert ledger.encode(decoded(data)) == data


def test_the_values_of_a_closed_ledger_are_those_that_bookkeeper_wrote() -> None:
    data = (FIXTURES / "wire/ledgermeta-v3-closed.bin").read_bytes()
    assert decoded(data) == ClusterLedgerMetadata(
        ensemble_size=3,
        write_quorum=3,
        ack_quorum=2,
        segments=(LedgerSegment(0, FIRST), LedgerSegment(7, SECOND)),
        state=ClusterLedgerState.CLOSED,
        last_entry=9,
        length=50,
        digest_type=DigestType.CRC32C,
        password=b"pwd",
        created_ms=1_700_000_000_000,
        custom=(CustomField("application", b"pulsar"),),
        creator_token=0,
    )


@pytest.mark.parametrize(
    ("name", "state", "segments"),
    [
        ("open", ClusterLedgerState.OPEN, 1),
        ("inrecovery", ClusterLedgerState.IN_RECOVERY, 1),
        ("closed", ClusterLedgerState.CLOSED, 2),
    ],
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_format_has_every_state(
    version: int, name: str, state: ClusterLedgerState, segments: int
) -> None:
    found = decoded((FIXTURES / f"wire/ledgermeta-v{version}-{name}.bin").read_bytes())
    assert (found.state, found.format_version, len(found.segments)) == (state, version, segments)
    assert found.ack_quorum == (3 if version == 1 else 2)


def test_a_password_is_not_in_the_representation() -> None:
    found = decoded((FIXTURES / "wire/ledgermeta-v3-open.bin").read_bytes())
    assert found.password == b"pwd"
    assert "pwd" not in repr(found)


# ── random metadata ───────────────────────────────────────────────────────────────────────────────────────


def check_rewrite(metadata: ClusterLedgerMetadata) -> None:
    """Check that decoding loses nothing, and that a rewrite changes only what was changed."""
    data = ledger.encode(metadata)
    found = decoded(data)
    assert found == metadata
    assert ledger.encode(found) == data
    closed = decoded(ledger.encode(found.closed(9, 50)))
    assert closed == replace(metadata, state=ClusterLedgerState.CLOSED, last_entry=9, length=50)


seeds = st.integers(0, (1 << 64) - 1)


@given(seeds)
def test_26_random_metadata_survives_a_rewrite_with_its_unknown_fields(seed: int) -> None:
    check_rewrite(ledger_metadata(seed))


@pytest.mark.slow(60)
@given(seeds)
@settings(max_examples=50_000)
def test_fifty_thousand_random_metadata_survive_a_rewrite(seed: int) -> None:
    check_rewrite(ledger_metadata(seed))


def test_fields_of_a_newer_version_survive_at_every_level() -> None:
    later = protobuf.encode_varint(99 << 3) + b"\x05"
    data = (FIXTURES / "wire/ledgermeta-v3-open-custom-ctime.bin").read_bytes()
    found = decoded(data)
    newer = replace(
        found,
        unknown=later,
        segments=(replace(found.segments[0], unknown=later),),
        custom=(replace(found.custom[0], unknown=later),),
    )
    encoded = ledger.encode(newer)
    assert encoded.count(later) == 3
    assert ledger.encode(decoded(encoded).closed(5, 10)).count(later) == 3


# ── changes ───────────────────────────────────────────────────────────────────────────────────────────────


def opened() -> ClusterLedgerMetadata:
    return decoded((FIXTURES / "wire/ledgermeta-v3-open.bin").read_bytes())


def test_an_ensemble_change_adds_a_segment() -> None:
    changed = opened().with_ensemble_change(7, SECOND)
    assert changed.segments == (LedgerSegment(0, FIRST), LedgerSegment(7, SECOND))
    assert [changed.segment_of(entry).bookies for entry in (0, 6, 7, 1000)] == [FIRST, FIRST, SECOND, SECOND]


def test_an_ensemble_change_at_the_same_entry_replaces_the_segment() -> None:
    assert opened().with_ensemble_change(0, SECOND).segments == (LedgerSegment(0, SECOND),)


def test_copied_entries_change_the_bookies_of_their_segment_alone() -> None:
    changed = opened().with_ensemble_change(7, SECOND).with_bookies(0, SECOND)
    assert changed.segments == (LedgerSegment(0, SECOND), LedgerSegment(7, SECOND))


def test_a_close_keeps_everything_but_state_end_and_length() -> None:
    closed = opened().closed(9, 50)
    assert closed == replace(opened(), state=ClusterLedgerState.CLOSED, last_entry=9, length=50)
    assert closed.is_closed


def test_a_digest_type_without_a_password_survives() -> None:
    # The reader believes the digest type only beside a password, and both are optional.
    bare = replace(opened(), password=None)
    assert decoded(ledger.encode(bare)) == bare


def test_metadata_without_an_ack_quorum_waits_for_the_write_quorum() -> None:
    old = b"BookieMetadataFormatVersion\t2\nquorumSize: 2\nensembleSize: 2\nlength: 0\nstate: OPEN\n"
    found = decoded(old + b'segment { ensembleMember: "a" ensembleMember: "b" firstEntryId: 0 }')
    assert (found.ack_quorum, found.last_entry, found.password) == (2, None, None)


# ── damage ────────────────────────────────────────────────────────────────────────────────────────────────

HEAD = b"BookieMetadataFormatVersion\t"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the header is missing"),
        (b"junk", "the header is missing"),
        (HEAD + b"9\n", "format version 9; this program knows 1 to 3"),
        (HEAD + b"0\n", "format version 0"),
        (HEAD + b"x\n", "no version of the format"),
        (HEAD + b"3", "no version of the format"),
        (HEAD + b"99999999999\n", "no version of the format"),
        (HEAD + b"3\n", "no length of the message"),
        (HEAD + b"3\n\x05\x08", "1 bytes after the length, which says 5"),
        (HEAD + b"3\n\x02\x08\x01", "LedgerMetadataFormat: ensembleSize is missing"),
        (HEAD + b"2\nstate: OPEN", "LedgerMetadataFormat: quorumSize is missing"),
        (HEAD + b"2\nquorumSize: 1\nensembleSize: 1\nlength: 0\nstate: MISSING", "state is 'MISSING'"),
        (HEAD + b"2\nquorumSize: 1\nensembleSize: 1\nlength: 0\nstate: 7", "state 7"),
        (HEAD + b"2\nquorumSize: 1\nensembleSize: 1\nlength: 0\nstate: OPEN", "no segment"),
        (
            HEAD + b"2\nquorumSize: 3\nensembleSize: 2\nlength: 0\nstate: OPEN",
            "ensemble, write quorum and ack",
        ),
        (HEAD + b"1\n1\n2\n0\n0\tbk1\n", "1 bookies in the segment at entry 0, and an ensemble size of 2"),
        (HEAD + b"1\n1\n1\n0\n5\ta\n5\tb\n", "a segment at entry 5 after that at 5"),
        (HEAD + b"1\n1\n1\n0\n-4\ta\n", "a segment at entry -4 after that at -1"),
        (HEAD + b"1\n1\n1\n0\n0\ta\n-7\tCLOSED", "closed at entry -7"),
        (HEAD + b"1\nx\n1\n0\n0\ta\n", "format version 1: invalid literal"),
        (HEAD + b"1\n1\n", "format version 1: not enough values"),
        (HEAD + b"1\n\xff\n", "format version 1: "),
    ],
)
def test_26_data_that_is_no_metadata_is_refused_with_the_reason(data: bytes, words: str) -> None:
    found = ledger.decode(data)
    assert isinstance(found, Malformed)
    assert words in found.reason


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_cut_at_any_byte_is_refused_or_is_an_older_state(path: Path) -> None:
    data = path.read_bytes()
    for size in range(len(data)):
        # Only text can end early and be whole: the length of the binary form tells.
        assert isinstance(ledger.decode(data[:size]), Malformed) or b"\t3\n" not in data


@given(st.sampled_from(GOLDEN), st.data())
def test_a_changed_byte_does_no_more_than_be_refused(path: Path, data: st.DataObject) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    found = ledger.decode(bytes(damaged))
    assert isinstance(found, Malformed) or found.ensemble_size >= found.write_quorum >= found.ack_quorum >= 1
