-- The runs of every store, from the parts that count. Rows of an index about ledgers that were deleted since
-- the index was changed are void.
SELECT
    p.store, CAST(p.source AS STRING) AS source, s.file, s.ledger, s.step, s.first_entry, s.last_entry, s.entries, s.size, s.places,
    s.digests, s.bad
FROM scanned AS s
JOIN parts AS p ON p.part = s.part
LEFT JOIN ledger_facts AS f
    ON p.source = 'index' AND f.store = p.store AND f.ledger = s.ledger AND f.is_void
WHERE f.ledger IS NULL
