"""The checks: rules, as pure functions from facts to findings.

    all_rules                                             every rule over one store, in one order
    journal_rules, log_rules, ledger_rules                journals and mark; entry logs; ledgers
    index_match, index_rules, entry_compare, log_order    the index against the entry logs
    replica_copies, replica_entries                       the copies that several stores hold
    texts, sql/                                           the checks that are SQL, one query in each file

The checks read no files. The result is the same whether one process, a pool of processes or Spark collected
the facts.
"""
