"""The report of a run: a page for people who look (`page.py`), and some lines for a terminal (`text.py`).

Both are pure functions of the numbers: nothing here opens a file, asks the clock or knows the laboratory.
"""
