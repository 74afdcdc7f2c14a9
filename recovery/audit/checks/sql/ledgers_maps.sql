-- Ledgers of which a log's ledgers map and its records have different sizes.
WITH described AS (
    SELECT m.store, m.file, m.ledger, sum(m.size) AS described FROM maps AS m GROUP BY m.store, m.file, m.ledger
), counted AS (
    SELECT r.store, r.file, r.ledger, sum(r.size) AS counted
    FROM store_runs AS r JOIN (SELECT DISTINCT store, file FROM mapped_logs) AS l
        ON l.store = r.store AND l.file = r.file
    WHERE r.source = 'log'
    GROUP BY r.store, r.file, r.ledger
)
SELECT
    coalesce(d.store, c.store) AS store, coalesce(d.file, c.file) AS file, coalesce(d.ledger, c.ledger) AS ledger,
    CAST(coalesce(d.described, 0) AS BIGINT) AS described, CAST(coalesce(c.counted, 0) AS BIGINT) AS counted
FROM described AS d
FULL JOIN counted AS c ON c.store = d.store AND c.file = d.file AND c.ledger = d.ledger
WHERE coalesce(d.described, 0) <> coalesce(c.counted, 0)
ORDER BY store, file, ledger
