"""ledgerstore's recovery: what a crash, a disk or a bookie has left, and what to make of it.

`recovery` judges the files that `storage` reads; the simulated disk and the `ledgerstore` command live here
too. It uses `storage`, never the other way round.
"""
