"""ZooKeeper's client protocol: its records, a server of our own for one machine, and the client.

    1   records      requests and responses as values; opcodes and errors
        jute         their bytes
        paths        the paths that a node may have
    2   tree         the znodes: `apply` makes one change
        watches      the watches of all clients, and the events that each client gets
        sessions     the sessions, and when each of them expires
    3   service      requests in, answers out: all decisions of the server
    4   log_format   the bytes of the log's entries and of snapshots
        log          the changes, durable in a store
    5   connection   frames in, answers out, and the limits of a connection's memory
        server       the order in which changes become durable and answers leave
    6   client       one session, through the port `metadata/znodes.py`
        node_watch   its watches
        kazoo_…      what it needs of kazoo: the names, the connection, the answers as values of the port

`log`, `connection`, `server`, `client`, `node_watch` and `kazoo_connection` drive the others, which are pure:
no clock, no sockets, no random numbers. docs/metadata.md says what the server is for and what it is not.
"""
