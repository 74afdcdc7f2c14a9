"""The checks: queries over tables, and rules as pure functions from facts and answers to findings.

    sql/, texts                                the checks that are SQL, one query in each file
    store_checks, replica_copies               their tables and their order: for one store, and for replicas
    all_rules                                  every rule over one store, in one order
    journal_rules, log_rules, ledger_rules     journals and mark; entry logs; ledgers
    bookie_index_rules, index_rules            a bookie's index; the index of a store of ours
    entry_compare, replica_entries, log_order  mismatched ledgers entry by entry

The checks read no files. The result is the same whether one process, a pool of processes or Spark collected
the facts.
"""
