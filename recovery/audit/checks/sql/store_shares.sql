-- How many entries each store should hold, how many of these it holds, and how many it holds in addition.
WITH counted AS (
    SELECT d.store, p.last_turn - p.first_turn + 1 AS should, 0 AS held, 0 AS beside
    FROM pieces AS p
    JOIN due AS d ON d.ledger = p.ledger AND d.span = p.span AND d.residue = p.residue
    UNION ALL
    SELECT store, 0, last_turn - first_turn + 1, 0 FROM placed WHERE place IS NOT NULL
    UNION ALL
    SELECT store, 0, 0, last_turn - first_turn + 1 FROM placed WHERE place IS NULL
)
SELECT
    store,
    sum(CAST(should AS DECIMAL(38, 0))) AS should,
    sum(CAST(held AS DECIMAL(38, 0))) AS held,
    sum(CAST(beside AS DECIMAL(38, 0))) AS beside
FROM counted
GROUP BY store
