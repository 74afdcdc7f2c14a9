"""A cluster on one machine: a metadata server and bookies as processes below one directory.

state       what the state file says: the members, their ports, their processes. Pure
processes   the only module that starts and signals processes, and that tells whether one still runs
ports       free ports, and whether a port is taken
look        what the metadata and the bookies say
cluster     the verbs: up, down, kill, pause, resume, restart, status
"""
