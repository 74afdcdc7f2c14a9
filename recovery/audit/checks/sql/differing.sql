-- Windows of ids that are compared entry by entry: logs and index differ, or both may agree and still be wrong,
-- because the index has invalid rows of the ledger or the ledger was deleted.
SELECT DISTINCT w.store, w.ledger, w.number
FROM windows AS w
LEFT JOIN ledger_facts AS f ON f.store = w.store AND f.ledger = w.ledger
WHERE NOT w.agree OR f.is_flawed OR f.deleted_rank >= 0
