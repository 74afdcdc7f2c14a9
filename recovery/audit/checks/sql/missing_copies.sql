-- Pieces with fewer copies than the write quorum, one row for each store that holds the piece, or one row
-- without a store.
SELECT
    p.ledger, p.segment, p.owed, p.copies,
    p.first_turn * e.step + p.residue AS first_entry,
    p.last_turn * e.step + p.residue AS last_entry,
    p.last_turn - p.first_turn + 1 AS entries,
    h.store AS holder
FROM pieces AS p
JOIN ensembles AS e ON e.ledger = p.ledger
LEFT JOIN placed AS h
    ON h.ledger = p.ledger AND h.span = p.span AND h.residue = p.residue
    AND h.first_turn <= p.first_turn AND h.last_turn >= p.last_turn
WHERE p.copies < e.write_quorum
ORDER BY p.ledger, p.residue, p.first_turn, h.store
