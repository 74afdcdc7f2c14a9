"""The metadata of a cluster in ZooKeeper: the nodes of docs/metadata.md, and how they are changed.

In the order in which they are best read:

    znodes             the port to ZooKeeper: verbs, and an answer for everything that can happen to a call
    address, paths     the address of a cluster, the paths of its ledgers, and their list
    ledger             the metadata of a ledger and its three formats
    update             changes that survive other clients and lost answers
    ids                new ledger ids
    registration       the bookies that are registered
    cookies            whether a bookie may start with its directories
    underreplication   the ledgers that must be repaired, and the locks of the workers that repair them
    election           the election of the auditor
    format             a cluster as a whole: made, erased, saved, brought back

Nothing here imports a clock, a socket or a random source, or starts a task: the caller gives a session, the
time and random numbers, and drives the coroutines. So a test or a simulator repeats every run.
"""
