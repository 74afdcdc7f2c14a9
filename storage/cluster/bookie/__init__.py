"""A bookie on the network: a store that answers BookKeeper's clients.

connection        pure: the bytes of one connection to requests, and answers to bytes; how much it may hold
adds              the adds of one pass of the loop as one commit, in runs of one writer
first_add         the check of the first add to a ledger against the metadata
reads             the reads of one pass of the loop: from memory at once, the others in a thread
requests          the answers to all requests other than ordinary adds and reads
access            pure: which clients are served, by TLS and by the roles in their certificates
server            the listener, the connections, and an orderly stop; it and `http` have the sockets
traffic           counts requests by outcome, how long they took, and bytes
metrics           the metrics of all that, as values
http              a small HTTP server
status            what it answers: metrics, health, state
config            how a bookie runs: options, and a Java bookie's configuration file
identity          the cookies, which decide whether the bookie may start
membership        the registration of the bookie, and its session with the metadata
deleted_ledgers   deletes the ledgers that the metadata no longer have
over_replicated   deletes copies of ledgers that the metadata no longer assign to this bookie
"""
