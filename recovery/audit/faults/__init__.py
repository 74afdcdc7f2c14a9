"""Faults, planted with a known truth: the proof that an audit finds what can be found.

    chart            where everything stands in an undamaged store: walked plainly, by no kernel of the audit
    copies           a copy that costs only the files that are damaged
    planted          what was done, and what has to be told of it
    kinds            the kinds of faults
    planting         which function plants which kind

    in_records, in_blocks, in_logs      entry logs
    in_journals, in_groups, in_marks    journals, and the mark
    in_index, in_names                  the index; rows, cookies, files that are missing or unknown
    in_replicas                         several stores that should hold the same

    samples          small stores to plant in
    self_test        faults of every kind, one at a time, and how many of them are found

What is expected of a fault is derived from what it does to the bytes, not from what the audit happens to say.
"""
