"""Every persisted byte, verified: whole files in tasks, on one machine or on Spark.

    task            a piece of work that any engine runs, and how it reports on its way
    ways            how the entries of each ledger are verified

    log_scan        entry logs → parts         journal_scan   journals → parts
    index_scan      the index → parts          drill          entries one by one, where runs disagree

    ground          what a directory holds, its live state held still
    plan            files → tasks
    local, spark    the engines
    gather          parts → facts for the rules in `recovery.verify`

Needs numpy; pyarrow for what is written to disk, and pyspark only for the Spark engine and the data sources.
"""
