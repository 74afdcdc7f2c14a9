-- What every store holds of each ledger. A store with an index serves what its index and its journals have;
-- its logs may hold more. Any other store serves all that its files hold. Of ledgers that were read entry by
-- entry only the entries that could be read count.
SELECT
    r.store, r.ledger, r.step, r.first_entry, r.last_entry, r.entries, r.digests, r.bad, s.is_indexed,
    r.source <> 'log' OR NOT s.is_indexed AS is_served,
    r.source <> 'index' AS is_in_files
FROM runs AS r JOIN stores AS s ON s.store = r.store
WHERE r.source IN ('log', 'index', 'journal') AND r.ledger NOT IN (SELECT ledger FROM read_ledgers)
UNION ALL
SELECT store, ledger, step, first_entry, last_entry, entries, digests, bad, FALSE, TRUE, TRUE FROM read_runs
