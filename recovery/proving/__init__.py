"""The crash laboratory applied to our own store, as `ledgerstore crash run` does without arguments."""
