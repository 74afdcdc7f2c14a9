"""The audit: verify every persisted byte of one or more stores, in tasks that run on one machine or on Spark.

    model        runs of entries, results of scans, facts about a store, the report
    findings     what a finding is, and the catalogue of all kinds
    digests      how the entries of each ledger are verified
    engines      the unit of work (a task), and the engines of one machine
    scan         entry logs, journals and the index, read into results
    snapshot     a consistent picture of a store that may be live, and what it contains
    checks       rules: from facts to findings, without reading files
    cache        results of scans that a later audit may use again
    pipeline     plan, scan, merge, check, report: `run_audit`
    spark        the Spark engine, and files as tables for Spark SQL
    history      when findings were first and last seen, and which are accepted
    report       the HTML page, the tables and the summary
    faults       faults that are planted to prove that an audit finds them

`tests/test_architecture.py` states which folder imports which. The audit needs numpy; it needs pyarrow for
what is written to disk, duckdb to compare replicas, and pyspark only for the Spark engine and the data
sources.
"""
