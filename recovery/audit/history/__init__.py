"""What earlier audits found: when each finding was first and last seen, and which findings are accepted.

finding_history   first seen, last seen, resolved: a line of JSON for each finding
baseline          findings that an operator has accepted, which no longer make an audit fail
"""
