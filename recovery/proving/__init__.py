"""The crash laboratory applied to our own store: what `ledgerstore crash run` proves by itself."""
