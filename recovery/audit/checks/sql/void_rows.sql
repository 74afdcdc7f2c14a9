-- How many rows of each index are void.
SELECT p.store, CAST(sum(s.entries) AS BIGINT) AS entries
FROM scanned AS s
JOIN parts AS p ON p.part = s.part AND p.source = 'index'
JOIN ledger_facts AS f ON f.store = p.store AND f.ledger = s.ledger AND f.is_void
GROUP BY p.store
