"""A client of ledgers whose entries are on several bookies.

All decisions are made by pure state machines: a machine gets events, and returns effects. It knows no
socket, no clock and no random source, so that a simulator can play each order of events, and play it again
(`recovery/clusterlab`).

    distribution      which bookies of an ensemble have an entry, and what some of their answers prove
    placement         the choice of bookies
    entries           the bytes of one ledger's entries
    effects           what a state machine asks for
    metadata_change   a change of the ledger's metadata: compare, write, and what a lost answer means
    copies            the entries under way: which copy was sent where, and which of them count
    writer            the life of an open ledger
    deferred_writer   the same with deferred syncs: only a force confirms
    recoverer         the take-over of a ledger: fence it, find its end, close it
    reader            one entry from its copies, and the last add confirmed
    tailer            a ledger that is still written to
    v2_calls          which call an answer of version 2 belongs to

The other modules perform the effects, on an event loop:

    opening           opens a connection to a bookie, with TLS or without
    connections       connections to bookies, and calls that end exactly once
    add_calls         the copies under way on one connection (pure)
    driver            performs the effects of one machine
    async_writer      the writer of a ledger, for coroutines
    reads_ahead       consecutive entries, read before they are asked for
    async_reader      the reader of a ledger, for coroutines
    cluster           creates, takes over, views and deletes ledgers
    connect           opens a client by the address of the metadata
    blocking          the same client for threads
"""
