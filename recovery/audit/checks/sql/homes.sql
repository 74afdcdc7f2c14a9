-- For each store of a ledger the ranges of turns in which it has the same position in the write set: consecutive
-- groups with the same position, joined. The position is -1 where the store need not hold anything.
WITH positions AS (
    SELECT g.ledger, g.residue, m.store, g.first_turn, g.last_turn, coalesce(d.place, -1) AS place
    FROM groups AS g
    JOIN (SELECT DISTINCT ledger, store FROM members) AS m ON m.ledger = g.ledger
    LEFT JOIN due AS d
        ON d.ledger = g.ledger AND d.span = g.span AND d.residue = g.residue AND d.store = m.store
), compared AS (
    SELECT *, lag(place) OVER (PARTITION BY ledger, residue, store ORDER BY first_turn) AS place_before
    FROM positions
), numbered AS (
    SELECT
        *,
        sum(CASE WHEN place = place_before THEN 0 ELSE 1 END) OVER (
            PARTITION BY ledger, residue, store ORDER BY first_turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS number
    FROM compared
)
SELECT ledger, residue, store, place, min(first_turn) AS first_turn, max(last_turn) AS last_turn
FROM numbered
GROUP BY ledger, residue, store, place, number
