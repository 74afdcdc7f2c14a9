"""Topics: series of ledgers in the formats of Pulsar's managed ledger, so that a broker serves what is
written here, and the reverse.

    errors            the errors of this folder
    message_id        the place of a message: its text, bytes and order
    message           a message as an application gives it, and as a reader gets it
    compression       the compressions that an entry can have
    message_format    the fields of one message
    batch_format      the bytes of the messages of a batch
    format            the bytes of an entry: metadata, checksum, one message or a batch
    cursor            what a subscription has acknowledged
    managed_ledger    the names of topics, and what the metadata has about a topic and its cursors
    routing           which partition a message goes to
    policies          when a ledger is full, and when an old one is deleted
    list_change       one change of the list of ledgers, whose answer may be lost
    series            the ledgers of a topic, as its owner changes them
    series_effects    what the series asks for
    node_format       the entries of the log that keeps the nodes of one local store

All of these are pure: they open no file, no socket and no clock. The others perform what they decide, on an
event loop:

    ledgers_port      the port to ledgers and nodes
    cluster_ledgers   the ledgers and nodes of a cluster
    embedded_nodes    the nodes of one local store, as a log in a ledger
    embedded_ledgers  the ledgers of one local store
    owner             performs the effects of a series
    producer          makes entries of messages, alone or in batches
    sequences         the last sequence ids of producers with a name
    reader            reads the messages of a topic
    subscription      delivers messages until they are acknowledged
    cursor_store      keeps the acknowledgements of a subscription in a node or in a ledger
    topic             the object that a program uses
    partitioned       the same for all partitions of a topic
    blocking          the same for threads, with blocking_readers
    embedded          the topics of one local store
    administration    lists, copies and deletes whole topics, and makes partitions
"""
