"""The report of a run: a page of HTML (`page.py`) and some lines of text for a terminal (`text.py`).

Both are pure functions of the numbers: they open no file but their templates, and do not know the laboratory.
"""
