"""A laboratory for the protocol of ledgers over several bookies.

One process, one thread and one source of chance play clients, bookies, the network and the metadata. The
clients are the real state machines of `storage/cluster/client`; the rest are models. A schedule is its seed,
or the list of its choices, so it can be played again and made smaller.

    world         time, the queue of events, chance
    bookies       bookies with a volatile and a durable half
    metadata      compare-and-set with sessions, followers that lag, and answers that are late or lost
    network       links that delay, lose, cut and repeat
    clients       processes that drive the state machines; they are paused and killed
    oracles       what must hold, at every step and at the end
    workload      one schedule: what each client does, and what goes wrong
    deferred      the same for ledgers with deferred syncs
    directed      schedules that are written by hand
    explorer      many schedules; how a failing one is made smaller
    unordered     messages of which any may be the next one
    small_worlds  worlds of which every order is played
    campaign      both in several processes, and their figures
    report        the page of a run
"""
