"""ledgerstore's recovery: what a crash, a disk or a bookie has left, and what to make of it.

`recovery` judges, replays, rebuilds, verifies and audits the files that `storage` reads and writes; the
crash lab and the `ledgerstore` command live here too. It uses `storage`, never the other way round.
"""
