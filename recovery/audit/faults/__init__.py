"""Faults with a known truth, planted in copies of stores: the proof that an audit finds what can be found.

    chart            the position of every record in an undamaged store, found without the audit's code
    store_copy       a copy of a store that duplicates only the files that are damaged
    planted          a planted fault, and the findings that are expected
    kinds            the kinds of faults
    planting         which function plants which kind

    in_records, in_blocks, in_logs      entry logs
    in_journals, in_groups, in_marks    journals, and the mark
    in_index, in_names                  the index; ledger metadata, cookies, missing and unknown files
    in_replicas                         several stores that should hold the same entries

    samples          small stores to plant faults in
    self_test        faults of every kind, one at a time, and how many of them are found

The expected findings of a fault are derived from what it does to the bytes, not from what the audit reports.
"""
