"""Auto-recovery copies what a lost bookie held to other bookies.

fragments       what each bookie has of a ledger: a segment's key and an index. Pure
check           reads entries of fragments, and keeps missing, damaged and unreachable apart. Pure
copying         copies the entries of one fragment to another bookie, or again to its own. Pure
growing         what a suspect has missed where a ledger grows. Pure
repair          one ledger: check, copy, change the metadata, check again. Pure
lost_bookies    which bookies are lost, and when their ledgers are marked. Pure
check_position  where a check of all ledgers goes on that was cut short
progress        what workers publish of themselves in the metadata
attempts        when a ledger that could not be repaired is tried again. Pure
drive           runs a machine over a client of the cluster
audits          passes over all ledgers: marks, checks
auditor         the elected process: watches bookies, audits
worker          takes marked ledgers one by one, and repairs them
decommission    empties a bookie that is gone, and removes its cookie
service         a candidate for auditor and a worker in one process, started again when they fail
"""
