"""The messages between BookKeeper's clients and bookies. Pure: bytes to values, and values to bytes.

    frames        the boundaries of messages in a stream, and which version of the protocol a message has
    messages      requests and answers, the same for both versions
    v2, v3        their bytes in version 2 (fixed offsets) and version 3 (protocol buffers)
    v3_tables     the messages of version 3 as tables, for all that has no shortcut in v3
    protobuf      protocol buffers by tables; fields that a table does not name are kept
    text          their text form, which is only in metadata, by the same tables
    codes         result codes: of both versions, of the Java client, and the errors of this package
    entry_list    the condensed list of a ledger's entries

No module here knows of sockets, clocks, files or stores.
"""
