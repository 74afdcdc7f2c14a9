"""The demo: a writer is killed while it writes, and then every acknowledged entry is looked for.

    workload        the entries, which follow from their ids, so that no list of them is needed
    writer          the process that writes and reports each acknowledgement, until it is killed
    writer_process  that process as its parent sees it: its reports, and its end
    audit           reads everything back after the kill
    run             all of it, one after the other

Nothing here prints: progress goes to callbacks.
"""
