"""Topics: series of ledgers in the formats of Pulsar's managed ledger, so that a broker serves what is
written here, and the reverse.

    errors            the errors of this folder
    message_id        the place of a message: its text, bytes and order
    message           a message as an application gives it, and as a reader gets it
    compression       the compressions that an entry can have
    format            the bytes of an entry: metadata, checksum, one message or a batch
    cursor            what a subscription has acknowledged
    managed_ledger    the names of topics, and what the metadata has about a topic and its cursors

All of these are pure: they open no file, no socket and no clock.
"""
