-- Ledgers that are compared entry by entry: logs and index have different entries, or the index has invalid
-- rows, rows of a deleted ledger, or rows of truncated entries. A deleted ledger is not compared if the index
-- has nothing of it, and no log after its deletion.
WITH suspects AS (
    SELECT p.store, p.ledger
    FROM places AS p JOIN audited_stores AS a ON a.store = p.store
    WHERE a.is_indexed AND NOT p.agree
    UNION
    SELECT store, ledger FROM ledger_facts WHERE is_flawed
    UNION
    SELECT r.store, r.ledger
    FROM store_runs AS r JOIN ledger_facts AS f ON f.store = r.store AND f.ledger = r.ledger
    WHERE r.source = 'index' AND (f.deleted_rank >= 0 OR r.first_entry < f.truncated_before)
)
SELECT s.store, s.ledger, CAST(coalesce(sum(p.logged + p.indexed), 0) AS BIGINT) AS entries
FROM suspects AS s
LEFT JOIN ledger_facts AS f ON f.store = s.store AND f.ledger = s.ledger
LEFT JOIN places AS p ON p.store = s.store AND p.ledger = s.ledger
LEFT JOIN logs AS g ON g.store = p.store AND g.file = p.file
GROUP BY s.store, s.ledger
HAVING coalesce(max(f.deleted_rank), -1) < 0 OR sum(p.indexed) > 0 OR max(g.age) >= max(f.deleted_rank)
