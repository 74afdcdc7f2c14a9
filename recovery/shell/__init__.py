"""The `ledgerstore` command line. It parses arguments and prints rows; the other packages do the work.

main, lazy_group    the list of commands; each is imported when it is called
options             options that several commands share
output              tables, JSON and progress bars
exit_codes          exit codes, and errors that end a command with one line
places              from a path or an id on the command line to files
passwords           passwords for MAC digests
commands/           one module for each command
listing/            the rows of journals, entry logs, ledgers and findings

A flag of a command is annotated as `object`, because it is only tested for truth, and the code base has no
boolean parameters.
"""
