"""What an audit leaves behind: a page for people who look, tables and a summary for programs.

    kept        writes all of it into a directory
    tables      findings, runs and parts as Parquet
    summary     the audit in one JSON object
    page        the page, from top to bottom
    figures     what the page and the summary count
    strips      files to scale, with what is wrong in them
    copies      how many copies there are of what
    looking     the command that shows what a finding is about

All but `kept` are pure functions of what was inspected: nothing opens a file or asks the clock.
"""
