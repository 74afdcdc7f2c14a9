"""The findings of earlier audits: when each was first and last seen, and which of them are accepted.

finding_history   first seen, last seen, resolved: a line of JSON for each finding
baseline          findings that an operator has accepted, which no longer make an audit fail
"""
