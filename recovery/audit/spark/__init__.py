"""The audit's tasks on Spark: on this machine, or on the executors of a cluster.

java           find the Java that Spark needs, or say what to install
archive        Spark's Java classes, loaded and verified once for all runs
launch         start that Java process without output on the terminal
session        a context or session with all settings, unless one is active
shipping       send this package to the executors of a cluster
engine         tasks → one Spark job → results, as they end

data_sources   files as tables for Spark SQL: `entrylog`, `journal`, `ledgerindex`
*_tables       the rows of each kind of file
"""
