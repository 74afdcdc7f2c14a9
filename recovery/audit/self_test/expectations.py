"""Which findings a damage must have, and which it may have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from recovery.audit.findings.finding import Severity
from recovery.audit.self_test.corruptions import Trace, zero
from storage.disk import filenames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.audit.findings.finding import Finding
    from recovery.audit.self_test.content import FileContent, Piece, StoreContent
    from recovery.audit.self_test.corruptions import Corruption, Spot

_OF_LOGS = frozenset({"ELG-001", "ELG-002", "ELG-003", "ELG-004", "ELG-005", "ELG-006"})
_WHOLE_FILE = frozenset({"ELG-001", "ELG-002", "ELG-005"})
_OF_JOURNALS = frozenset({"JRN-001", "JRN-002", "JRN-003", "JRN-004", "JRN-005"})
_NAMING = frozenset({"IDX-001", "IDX-002", "ELG-003", "ELG-004", "ELG-007"})
_UNVERIFIED = frozenset({"LGR-005"})
"""Of an entry without a digest, or with a MAC whose password is not given."""
_KIND_OF_FILLER = (12, 20)
_ID_PLACE = 4
_ID_SIZE = 16


class FindingExtent(NamedTuple):
    """Where a finding has to be: from `start` to `end`, and over the byte `at` if that is known.

    No sound record is included: `end` is where the next one begins that a reader can be sure of.
    """

    start: int
    end: int
    at: int | None = None
    record: int | None = None
    """Where the damaged record begins. A finding that begins there may end before `at`."""

    def holds(self, finding: Finding) -> bool:
        if finding.offset is None or not self.start <= finding.offset < max(self.end, self.start + 1):
            return False
        if finding.end is not None and finding.end > self.end:
            return False
        if self.at is None:
            return True
        covers = finding.end is None or finding.end > self.at or finding.offset == self.record
        return finding.offset <= self.at and covers


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One expected finding. Fields that are not set may have any value."""

    kinds: frozenset[str]
    store: str | None = None
    """The last part of its path."""
    file: str | None = None
    reach: FindingExtent | None = None
    ledger_id: int | None = None
    entry_id: int | None = None

    def matches(self, finding: Finding) -> bool:
        first, last = finding.first_entry, finding.last_entry
        return (
            finding.kind in self.kinds
            and self.store in (None, PurePath(finding.store).name)
            and self.file in (None, finding.file)
            and (self.reach is None or self.reach.holds(finding))
            and self.ledger_id in (None, finding.ledger_id)
            and (
                self.entry_id is None
                or (first is not None and first <= self.entry_id <= (first if last is None else last))
            )
        )

    def __str__(self) -> str:
        said = "|".join(sorted(self.kinds))
        for name, value in (("store", self.store), ("file", self.file), ("ledger", self.ledger_id)):
            said += "" if value is None else f" {name} {value}"
        said += "" if self.entry_id is None else f" entry {self.entry_id}"
        return said if self.reach is None else f"{said} {self.reach}"


Alternatives = tuple[Expected, ...]
"""Any one of these findings is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedDamage:
    """The damaged places, and the findings that follow from them."""

    name: str
    file: str
    place: str = ""
    wanted: tuple[Alternatives, ...] = ()
    allowed: Alternatives = ()
    also: frozenset[str] = frozenset()
    """Kinds of findings that are allowed anywhere."""

    def is_found_by(self, findings: Iterable[Finding]) -> bool:
        """Return whether findings say that something is wrong there, even if they are not precise."""
        said = list(findings)
        return all(
            any(one.kind in expected.kinds for expected in wanted for one in said) for wanted in self.wanted
        )

    def missed_by(self, findings: Sequence[Finding]) -> list[Alternatives]:
        """Return the expected findings that are missing."""
        return [
            wanted
            for wanted in self.wanted
            if not any(expected.matches(one) for expected in wanted for one in findings)
        ]

    def strays_of(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return errors and warnings that neither this damage nor its consequences explain."""
        explained = [*self.allowed, *(one for wanted in self.wanted for one in wanted)]
        return [
            one
            for one in findings
            if one.is_wrong
            and one.kind not in self.also
            and not any(expected.matches(one) for expected in explained)
        ]

    def complaint(self, findings: Sequence[Finding]) -> str | None:
        """Return a text that says why the damage counts as missed, or `None` if it does not."""
        missed, strays = self.missed_by(findings), self.strays_of(findings)
        if not missed and not strays:
            return None
        lines = [f"{self.name}: {self.file} {self.place}".rstrip()]
        lines += [f"  missing: {' or '.join(map(str, wanted))}" for wanted in missed]
        lines += [f"  unexpected: {shown(one)}" for one in strays]
        lines += [f"  found: {shown(one)}" for one in findings] or ["  nothing was found"]
        return "\n".join(lines)


def shown(finding: Finding) -> str:
    """Return one finding on one line."""
    end = "" if finding.end is None else f"..{finding.end}"
    entries = "" if finding.first_entry is None else f" entries {finding.first_entry}..{finding.last_entry}"
    ledger = "" if finding.ledger_id is None else f" ledger {finding.ledger_id}"
    severity = Severity(finding.severity).name.lower()
    return (
        f"{finding.kind} {severity} {finding.place}{end}{ledger}{entries} x{finding.count} {finding.detail}"
    )


# ── what follows from the bytes that changed ──────────────────────────────────────────────────────────────


class Hit(NamedTuple):
    """A record whose bytes changed, and the first of them that did."""

    piece: Piece
    at: int


@dataclass(frozen=True, slots=True)
class _ChangedFile:
    """A file whose bytes changed."""

    content: StoreContent
    row: Corruption
    spot: Spot
    file: FileContent
    hits: tuple[Hit, ...]
    new: bytes

    @property
    def is_short(self) -> bool:
        return len(self.new) < self.file.size

    @property
    def is_foreign(self) -> bool:
        """Whether records of another place may be there now."""
        return self.row.trace is Trace.MISLEADING and bool(self.spot.other)

    @property
    def is_other_id(self) -> bool:
        return self.row.trace is Trace.MISLEADING and not self.spot.other

    def has_same_ids(self, piece: Piece) -> bool:
        """Return whether a record of the same entry is where this one was."""
        at = piece.start + _ID_PLACE
        ids = piece.ledger_id.to_bytes(8, signed=True) + piece.entry_id.to_bytes(8, signed=True)
        return at >= self.spot.start and self.new[at : at + _ID_SIZE] == ids


class _Findings(NamedTuple):
    wanted: Sequence[Alternatives]
    allowed: Alternatives
    also: frozenset[str]


_NOTHING = _Findings((), (), frozenset())


def expect(content: StoreContent, row: Corruption, spot: Spot, old: bytes, new: bytes) -> PlantedDamage:
    """Return what must and may be found after a file's bytes changed from `old` to `new`."""
    name = filenames.INDEX if spot.path.parent.name == filenames.INDEX else spot.path.name
    places = range(spot.start, min(len(old), len(new), spot.end))
    place = f"@{next((at for at in places if old[at] != new[at]), spot.start)}"
    found = _NOTHING
    if row.kinds:
        nearby = spot.file is not None and spot.file.is_log
        allowed = (Expected(kinds=row.kinds | _OF_LOGS, file=name),) if nearby else ()
        found = _Findings(((Expected(kinds=row.kinds),),), allowed, frozenset())
    elif row.trace is not Trace.NOTHING and spot.file is not None:
        change = _ChangedFile(content, row, spot, spot.file, tuple(_hits(spot.file, old, new)), new)
        place += "".join(f", ledger {one.ledger_id} entry {one.entry_id}" for one, _ in change.hits[:3])
        if change.hits:
            found = _in_log(change) if spot.file.is_log else _in_journal(change)
    return PlantedDamage(
        name=row.name,
        file=name,
        place=place,
        wanted=tuple(found.wanted),
        allowed=found.allowed,
        also=row.also | found.also,
    )


def _hits(file: FileContent, old: bytes, new: bytes) -> Iterator[Hit]:
    for piece in file.pieces:
        was, now = old[piece.start : piece.end], new[piece.start : piece.end]
        if was != now:
            same = next((n for n, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), len(now))
            yield Hit(piece, piece.start + same)


def _in_log(change: _ChangedFile) -> _Findings:
    file, start = change.file, change.hits[0].piece.start
    # A finding may begin at the first record that was hit, and ends before the next that proves itself.
    end = max(min(change.spot.end, file.size), *(hit.piece.reach[1] for hit in change.hits))
    wanted = [one for hit in change.hits if hit.piece.must for one in _wanted_in_log(change, hit, start, end)]
    if change.is_foreign and not change.content.is_ours and any(hit.piece.must for hit in change.hits):
        # Sound records are in the place, and nothing shows that others should be there.
        wanted = [_at(file, FindingExtent(start, end))]
    wanted += [
        (
            *_at(file, FindingExtent(start, file.size)),
            Expected(kinds=_UNVERIFIED, ledger_id=hit.piece.ledger_id),
        )
        for hit in change.hits
        if not hit.piece.must and not change.content.is_dead(hit.piece) and not change.is_short
    ]
    is_astray = change.content.has_unproven or not all(hit.piece.must for hit in change.hits)
    names = {hit.piece.ledger_id for hit in change.hits}
    allowed = (
        *_at(file, FindingExtent(start, file.size if is_astray else end)),
        *(Expected(kinds=_NAMING, ledger_id=one) for one in names),
    )
    # Unproven records may include what follows them, so that it is not found.
    also = frozenset({"ELG-007", "IDX-002", "IDX-003", "IDX-006"}) if is_astray else frozenset()
    return _Findings(wanted, allowed, also)


def _at(file: FileContent, reach: FindingExtent) -> Alternatives:
    return (
        Expected(kinds=_OF_LOGS - _WHOLE_FILE, file=file.name, reach=reach),
        Expected(kinds=_WHOLE_FILE, file=file.name),
    )


def _wanted_in_log(change: _ChangedFile, hit: Hit, start: int, end: int) -> Iterator[Alternatives]:
    """Yield what must be found: a finding at the place, and for an indexed entry one that names it."""
    piece, file = hit.piece, change.file
    if change.is_foreign and change.has_same_ids(piece):
        return
    located = _at(file, FindingExtent(start, end, None if change.is_short else hit.at, piece.start))
    if not piece.is_entry:  # a wrong length is noticed where the next record should begin
        located = _at(file, FindingExtent(start, file.size))
    named: Alternatives = ()
    if piece.is_indexed:
        named = (Expected(kinds=_NAMING, ledger_id=piece.ledger_id, entry_id=piece.entry_id),)
        yield named
    if change.is_other_id:
        # It may look like an entry that nothing verifies.
        unverified = (Expected(kinds=_UNVERIFIED),)
        yield (*located, *named, *(() if change.content.is_ours else unverified))
    elif change.is_foreign:
        if piece.is_indexed:
            yield (*located, *named)
    elif change.is_short:
        # An unsealed log of a bookie that ends between two records may have been so short.
        if hit is change.hits[0] and (file.is_sealed or hit.at > piece.start):
            yield located
    elif piece.is_entry or piece.is_map or not _is_kind(hit):
        yield located


def _is_kind(hit: Hit) -> bool:
    """Return whether only the kind of a filler changed: every scan skips the filler nevertheless."""
    start, end = (hit.piece.start + one for one in _KIND_OF_FILLER)
    return start <= hit.at < end


def _in_journal(change: _ChangedFile) -> _Findings:
    file, position = change.file, change.content.position
    first, last = change.hits[0].piece.reach[0], max(hit.piece.reach[1] for hit in change.hits)
    also: set[str] = set()
    moved: Alternatives = ()
    if file.is_ours and first <= _first_group(file):
        # Without its first seal the journal is no link of the chain, and earlier ones are doubted.
        also = {"JRN-002", "JRN-003"}
    if not file.is_ours and file.number == position.journal_id and last > position.offset:
        # The journal seems to end before its mark, or the mark may be wrong: nothing shows which.
        moved, also = (Expected(kinds=frozenset({"MRK-004"}), file=filenames.LAST_MARK),), {"MRK-004"}
    hits = change.hits if file.is_ours and not change.is_short else change.hits[:1]
    wanted = []
    for hit in hits:
        if hit.piece.must and not _is_unnoticed(change, hit):
            is_cut_bookie = change.is_short and not file.is_ours
            is_wide = change.is_foreign or change.is_short
            reach = (file.start if is_cut_bookie else first, file.size if is_wide else last)
            wanted += [(*one, *moved) for one in _wanted_in_journal(change, hit, reach)]
    is_wide = change.is_foreign or not file.is_ours
    allowed = Expected(
        kinds=_OF_JOURNALS, file=file.name, reach=FindingExtent(first, file.size if is_wide else last)
    )
    return _Findings(wanted, (allowed,), frozenset(also))


def _wanted_in_journal(change: _ChangedFile, hit: Hit, reach: tuple[int, int]) -> Iterator[Alternatives]:
    """Yield a finding about the group, and in a sealed group one that names the entry."""
    piece, file = hit.piece, change.file
    is_last = piece.reach[1] == file.size
    # A wrong length of an unproven record is noticed at the next record only, and foreign bytes may be sound
    # records whose end shows that they do not belong there.
    is_vague = change.is_foreign or change.is_short or piece.digest is None
    is_vague |= change.row.corrupt is zero and is_last
    at = None if is_vague else hit.at
    unverified = (Expected(kinds=_UNVERIFIED),) if change.is_other_id else ()
    yield (
        Expected(kinds=_OF_JOURNALS, file=file.name, reach=FindingExtent(*reach, at, piece.start)),
        *unverified,
    )
    has_ids = hit.at >= piece.start + _ID_PLACE + _ID_SIZE and any(change.new[hit.at : piece.end])
    if file.is_ours and not is_last and piece.digest and has_ids and change.row.trace is Trace.WRONG_BYTES:
        yield (
            Expected(
                kinds=_OF_JOURNALS,
                file=file.name,
                reach=FindingExtent(piece.start, piece.reach[1], hit.at, piece.start),
                ledger_id=piece.ledger_id,
                entry_id=piece.entry_id,
            ),
        )


def _first_group(file: FileContent) -> int:
    return file.seals[0][0].group_start if file.seals else file.end


def _is_unnoticed(change: _ChangedFile, hit: Hit) -> bool:
    """Return whether nothing shows that there was more: only zeros are left, or sound records.

    A full journal of ours shows it by its size, and a seal that vouches for the record shows it too.
    """
    file, piece = change.file, hit.piece
    if file.is_ours:
        is_vouched = piece.reach[1] < file.size or change.is_short
        return not is_vouched and not any(change.new[max(piece.reach[0], _first_group(file)) :])
    if change.is_foreign or (change.is_short and not piece.is_entry) or not any(change.new[piece.start :]):
        return True
    proven = any(one.digest is not None and one.start >= change.spot.end for one in file.pieces)
    return change.row.corrupt is zero and not proven
