"""The audit's tasks and queries on Spark: on this machine, on a cluster, or behind Spark Connect.

java           find the Java that Spark needs, or say what to install
archive        Spark's Java classes, loaded and verified once for all runs
launch         start that Java process without output on the terminal
session        a session with all settings, unless one is active; the code on the executors
engine         tasks → Spark jobs → results, as they end
sql            the queries of the checks

data_sources   files as tables for Spark SQL: `entrylog`, `journal`, `ledgerindex`
*_tables       the rows of each kind of file
"""
