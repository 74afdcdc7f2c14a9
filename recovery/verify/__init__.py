"""What sound files are: rules, as pure functions from facts to findings.

    finding     one thing that is wrong, with its place; how grave it is
    catalogue   every kind of finding: cause and remedy, by a stable id
    runs        entries as runs of consecutive ids, with fingerprints
    parts       what was found in a part of a file
    facts       what is known of one store's files, before anything is judged

Whoever gathers the facts (one process, a pool of them, Spark) is told the same: the rules see no files.
Needs numpy.
"""
