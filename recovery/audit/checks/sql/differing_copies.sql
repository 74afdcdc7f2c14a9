-- The readable copies in required places of each entry whose copies do not all have the same digest and size.
WITH required AS (
    SELECT c.number, c.ledger, c.entry, c.store, c.digest, c.size
    FROM read_copies AS c
    JOIN ensembles AS e ON e.ledger = c.ledger
    JOIN groups AS g
        ON g.ledger = c.ledger AND g.residue = c.entry % e.step
        AND div(c.entry, e.step) BETWEEN g.first_turn AND g.last_turn
    JOIN due AS d
        ON d.ledger = g.ledger AND d.span = g.span AND d.residue = g.residue AND d.store = c.store
), unequal AS (
    SELECT ledger, entry FROM required
    GROUP BY ledger, entry
    HAVING min(digest) <> max(digest) OR min(size) <> max(size)
)
SELECT r.number
FROM required AS r JOIN unequal AS u ON u.ledger = r.ledger AND u.entry = r.entry
ORDER BY r.ledger, r.entry, r.store
