-- Deleted ledgers of which a log has entries that another program than ours has written.
SELECT DISTINCT r.store, r.ledger
FROM store_runs AS r
JOIN ledger_facts AS f ON f.store = r.store AND f.ledger = r.ledger AND f.is_deleted
JOIN logs AS g ON g.store = r.store AND g.file = r.file AND g.is_foreign
JOIN audited_stores AS a ON a.store = r.store AND a.is_bookie
WHERE r.source = 'log'
