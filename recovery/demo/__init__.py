"""A writer is killed while it writes, and every entry it was answered for is looked for afterwards.

    workload   what is written, so that nobody has to remember it
    writer     the process that writes and tells each acknowledgement, until it is killed
    victim     that process as its parent sees it: what it has told, and its end
    audit      what is there after the kill
    run        all of it, one after the other

Plain Python: it shows nothing, and calls whoever wants to.
"""
