-- Ledgers of which a log's ledgers map and its records have different sizes.
WITH counted AS (
    SELECT r.store, r.file, r.ledger, sum(r.size) AS counted
    FROM store_runs AS r JOIN logs AS g ON g.store = r.store AND g.file = r.file AND g.map_offset > 0
    WHERE r.source = 'log'
    GROUP BY r.store, r.file, r.ledger
)
SELECT
    coalesce(d.store, c.store) AS store, coalesce(d.file, c.file) AS file, coalesce(d.ledger, c.ledger) AS ledger,
    CAST(coalesce(d.described, 0) AS BIGINT) AS described, CAST(coalesce(c.counted, 0) AS BIGINT) AS counted,
    coalesce(d.record, -1) AS record
FROM described AS d
FULL JOIN counted AS c ON c.store = d.store AND c.file = d.file AND c.ledger = d.ledger
WHERE coalesce(d.described, 0) <> coalesce(c.counted, 0)
ORDER BY store, file, ledger
