"""The laboratory for topics: owners that take over from each other, producers, readers and trims.

The state machine of an owner is the real one, `TopicSeries`. Ledgers are models with the promises of the
client of ledgers, which the rest of the laboratory tests: acknowledged entries stay; of the others a recovery
keeps as many of the first ones as chance decides; nothing is added after a fence.

    ledgers        model ledgers, and the node that has the list of them
    oracles        what must hold of the topic
    cursor_oracle  what must hold of a subscription
    processes      owners, with their producers, and readers
    consumers      consumers of a subscription: the coroutines of production on the world's time
    schedule       one schedule: what each process does, and what goes wrong
"""
