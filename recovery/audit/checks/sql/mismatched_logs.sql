-- The logs that hold entries of mismatched ledgers.
SELECT p.store, p.file, p.ledger
FROM places AS p JOIN mismatched AS m ON m.store = p.store AND m.ledger = p.ledger
WHERE p.logged > 0
ORDER BY p.store, p.file, p.ledger
