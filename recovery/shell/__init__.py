"""The `ledgerstore` command: arguments in, rows out. What is computed is computed elsewhere."""
