"""The fingerprint formula: one 64-bit number for each entry, and the XOR of these numbers for a run.

The number of an entry depends on its ledger id, its entry id and one value, which is the entry's location or
its digest. It is made in three steps, so that a scan does not repeat work:

    part of the ids    (ledger * LEDGER) ^ (entry * ENTRY)          shared by both fingerprints of a run
    stir               x = part + value * VALUE; (x ^ x >> 32) * STIR    for each entry
    finish             x ^ (x >> 29)                                once for each run: it commutes with XOR

`fingerprints` does all three for arrays of any type. The other functions work in place, on arrays of 64-bit
numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from recovery.audit.model.runs import Fingerprints, Numbers

_LEDGER_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
_ENTRY_FACTOR = np.uint64(0xC2B2_AE3D_27D4_EB4F)
_VALUE_FACTOR = np.uint64(0x1656_67B1_9E37_79F9)
_STIR_FACTOR = np.uint64(0xBF58_476D_1CE4_E5B9)
_STIR_SHIFT = np.uint64(32)
_FINISH_SHIFT = np.uint64(29)


def fingerprints(ledgers: Any, entries: Any, values: Any) -> Fingerprints:
    """Return one number for each entry."""
    shared = np.asarray(ledgers).astype(np.uint64) * _LEDGER_FACTOR
    shared = shared ^ (np.asarray(entries).astype(np.uint64) * _ENTRY_FACTOR)
    stirred = stir(np.asarray(values).astype(np.uint64), shared)
    return _finished(stirred)


def ledger_part(ledgers: Numbers) -> Fingerprints:
    """Return the part that depends on the ledger only, to be completed by `add_entry_part`."""
    part: Fingerprints = ledgers.view(np.uint64) * _LEDGER_FACTOR
    return part


def add_entry_part(shared: Fingerprints, entries: Numbers, out: Fingerprints | None = None) -> Fingerprints:
    """Complete the part of the ids in place. Return the array that was used for this, to be used again."""
    product: Fingerprints = np.multiply(entries.view(np.uint64), _ENTRY_FACTOR, out=out)
    shared ^= product
    return product


def stir(
    values: Any, shared: Fingerprints, out: Fingerprints | None = None, scratch: Fingerprints | None = None
) -> Fingerprints:
    """Mix the values into the part of the ids and return the result. The last step is left to `fold`.

    Without `out` and `scratch` new arrays are allocated, which a scan should avoid. `scratch` is overwritten;
    it may be `shared`, if that is not needed afterwards.
    """
    stirred: Fingerprints = np.multiply(values.view(np.uint64), _VALUE_FACTOR, out=out)
    stirred += shared
    stirred ^= np.right_shift(stirred, _STIR_SHIFT, out=scratch)
    stirred *= _STIR_FACTOR
    return stirred


def fold(stirred: Fingerprints, begins: Numbers) -> Fingerprints:
    """Return the fingerprint of each run. The runs begin at these places of the array."""
    return _finished(np.bitwise_xor.reduceat(stirred, begins))


def _finished(stirred: Fingerprints) -> Fingerprints:
    stirred ^= stirred >> _FINISH_SHIFT
    return stirred
