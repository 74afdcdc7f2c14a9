-- What each store serves of each group, and its position in the write set. The position is null for copies
-- that are not required.
SELECT
    g.ledger, g.span, g.residue, g.segment, g.owed, i.store, d.place,
    greatest(i.first_turn, g.first_turn) AS first_turn,
    least(i.last_turn, g.last_turn) AS last_turn
FROM islands AS i
JOIN groups AS g
    ON g.ledger = i.ledger AND g.residue = i.residue
    AND g.first_turn <= i.last_turn AND g.last_turn >= i.first_turn
LEFT JOIN due AS d
    ON d.ledger = g.ledger AND d.span = g.span AND d.residue = g.residue AND d.store = i.store
WHERE i.side = 'served'
