-- What the logs and the index of a store have of each ledger in each log. Both sides have the same entries at
-- the same places if their numbers and their fingerprints are equal.
SELECT
    r.store, r.file, r.ledger,
    CAST(sum(CASE WHEN r.source = 'log' THEN r.entries ELSE 0 END) AS BIGINT) AS logged,
    CAST(sum(CASE WHEN r.source = 'log' THEN 0 ELSE r.entries END) AS BIGINT) AS indexed,
    bit_xor(r.places) = 0 AND sum(CASE WHEN r.source = 'log' THEN r.entries ELSE -r.entries END) = 0 AS agree,
    CAST(sum(r.size) AS BIGINT) AS size,
    min(CASE WHEN r.source <> 'log' THEN r.first_entry END) AS first_entry,
    max(CASE WHEN r.source <> 'log' THEN r.last_entry END) AS last_entry
FROM store_runs AS r
JOIN audited_stores AS a ON a.store = r.store
WHERE (a.is_indexed AND r.source IN ('log', 'index'))
    OR (a.has_bookie_index AND r.source IN ('log', 'bookie'))
GROUP BY r.store, r.file, r.ledger
