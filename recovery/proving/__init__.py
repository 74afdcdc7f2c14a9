"""The crash laboratory applied to our own store: what `ledgerstore crash run` proves when it is given nothing else."""
