-- Copies on stores that need not hold them.
SELECT
    p.ledger, p.segment, p.owed, p.store,
    p.first_turn * e.step + p.residue AS first_entry,
    p.last_turn * e.step + p.residue AS last_entry,
    p.last_turn - p.first_turn + 1 AS entries
FROM placed AS p JOIN ensembles AS e ON e.ledger = p.ledger
WHERE p.place IS NULL
ORDER BY p.ledger, p.residue, p.first_turn, p.store
