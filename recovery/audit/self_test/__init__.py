"""Damage with a known truth, written into copies of stores: the proof that an audit finds what can be found.

    content        where every record of an undamaged store is, found without the audit's code
    corruptions    functions from bytes to damaged bytes, one row each
    directories    damage that is not in the bytes of a file: rows of the index, lost files, kinds of files
    expectations   which findings a damage must have, and which it may have
    stores         small stores to damage, stores with equal content, and stores killed at every step
    trials         damage of every kind, one at a time, and how much of it is found

The expected findings follow from the bytes that changed, not from what the audit reports.
"""
