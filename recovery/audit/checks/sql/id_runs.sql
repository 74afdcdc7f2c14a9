-- The runs whose ids the checks compare, once for each comparison:
--   served    what a store serves: its index or, without one, its logs; and its journals
--   journal   wanted are the entries of a journal before the mark; they have to be served
--   places    wanted are the rows of a bookie's index into a log; the log has to have their entries
--   logs      the logs of a bookie, which should have no entry twice
-- Ledgers with a single run have no gap and no entry twice. `scope` is the journal or the log of a comparison.
WITH served AS (
    SELECT r.store, r.ledger, r.step, r.first_entry, r.last_entry
    FROM store_runs AS r JOIN audited_stores AS a ON a.store = r.store
    WHERE r.source = 'journal' OR r.source = CASE WHEN a.is_indexed THEN 'index' ELSE 'log' END
), journaled AS (
    SELECT b.store, b.file, b.ledger, b.step, b.first_entry, b.last_entry
    FROM store_runs AS b
    JOIN audited_stores AS a ON a.store = b.store
    LEFT JOIN ledger_facts AS f ON f.store = b.store AND f.ledger = b.ledger AND f.is_deleted
    LEFT JOIN (SELECT DISTINCT store, ledger FROM store_runs WHERE source = 'journal') AS n
        ON n.store = b.store AND n.ledger = b.ledger
    -- Without its index nothing says which ledgers a bookie has deleted, so that only those count that have
    -- entries after the mark, too.
    WHERE b.source = 'before' AND f.ledger IS NULL
        AND CASE WHEN a.is_bookie THEN n.ledger IS NOT NULL ELSE a.is_indexed END
)
SELECT
    'served' AS comparison, s.store, CAST(0 AS BIGINT) AS scope, FALSE AS is_wanted, CAST(0 AS BIGINT) AS file,
    s.ledger, s.step, s.first_entry, s.last_entry
FROM served AS s
JOIN (SELECT store, ledger FROM served GROUP BY store, ledger HAVING count(*) > 1) AS n
    ON n.store = s.store AND n.ledger = s.ledger
UNION ALL
SELECT 'journal', store, file, TRUE, file, ledger, step, first_entry, last_entry FROM journaled
UNION ALL
SELECT 'journal', s.store, j.file, FALSE, 0, s.ledger, s.step, s.first_entry, s.last_entry
FROM served AS s
JOIN (SELECT DISTINCT store, file, ledger FROM journaled) AS j ON j.store = s.store AND j.ledger = s.ledger
UNION ALL
SELECT 'places', r.store, r.file, r.source = 'bookie', r.file, r.ledger, r.step, r.first_entry, r.last_entry
FROM store_runs AS r
JOIN audited_stores AS a ON a.store = r.store AND a.has_bookie_index
JOIN places AS p ON p.store = r.store AND p.file = r.file AND p.ledger = r.ledger
WHERE r.source IN ('bookie', 'log') AND p.indexed > 0 AND NOT p.agree
UNION ALL
SELECT 'logs', r.store, 0, FALSE, r.file, r.ledger, r.step, r.first_entry, r.last_entry
FROM store_runs AS r
JOIN audited_stores AS a ON a.store = r.store AND a.is_bookie
JOIN (
    SELECT store, ledger FROM store_runs WHERE source = 'log' GROUP BY store, ledger HAVING count(*) > 1
) AS n ON n.store = r.store AND n.ledger = r.ledger
WHERE r.source = 'log'
