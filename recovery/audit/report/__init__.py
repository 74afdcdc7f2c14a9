"""The report of an audit: a page for people, tables and a summary for programs.

    writer      write all of it into a directory
    tables      findings, runs and parts as Parquet
    summary     the audit as one JSON object
    page        the page, from top to bottom
    figures     numbers of the page and the summary
    strips      files drawn to scale, with marks for findings
    copies      how many copies of entries exist
    commands    the command that shows what a finding is about

All but `writer` are pure functions of the report: they open no file and do not read the clock.
"""
