"""The page of a run: one file of HTML for people who look, with plots and without a network (`document.py`).

It is drawn from what `store.py --json` has written, and from nothing else: nothing is measured here.
"""
