-- The runs that count when stores are compared, by the names of the stores in the ensembles.
SELECT
    n.store, r.source, r.file, r.ledger, r.step, r.first_entry, r.last_entry, r.entries, r.size, r.places,
    r.digests, r.bad
FROM store_runs AS r JOIN compared_stores AS n ON n.number = r.store
WHERE r.source IN ('log', 'index', 'journal')
