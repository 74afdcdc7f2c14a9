-- The logs and journals that hold entries of some ledgers.
SELECT DISTINCT r.store, r.source, r.file, r.ledger
FROM store_runs AS r JOIN asked_ledgers AS a ON a.ledger = r.ledger
WHERE r.source IN ('log', 'journal')
