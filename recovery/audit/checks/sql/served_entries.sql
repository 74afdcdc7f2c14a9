-- How many entries a store serves of the ledgers with unverified entries.
WITH counted AS (
    SELECT store, ledger, sum(CAST(last_turn - first_turn + 1 AS DECIMAL(38, 0))) AS entries
    FROM id_islands WHERE comparison = 'served' GROUP BY store, ledger
), whole AS (
    SELECT r.store, r.ledger, sum(CAST(r.entries AS DECIMAL(38, 0))) AS entries
    FROM store_runs AS r JOIN audited_stores AS a ON a.store = r.store
    WHERE r.source = 'journal' OR r.source = CASE WHEN a.is_indexed THEN 'index' ELSE 'log' END
    GROUP BY r.store, r.ledger
)
SELECT f.store, f.ledger, least(f.unverified, coalesce(c.entries, w.entries)) AS entries
FROM ledger_facts AS f
JOIN whole AS w ON w.store = f.store AND w.ledger = f.ledger
LEFT JOIN counted AS c ON c.store = f.store AND c.ledger = f.ledger
WHERE f.unverified > 0
