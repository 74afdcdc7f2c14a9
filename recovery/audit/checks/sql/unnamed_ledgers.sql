-- How many of the ledgers that each store serves are in no ensemble, and were not left out on purpose.
SELECT store, count(DISTINCT ledger) AS ledgers
FROM copies
WHERE is_served
    AND ledger NOT IN (SELECT ledger FROM ensembles)
    AND ledger NOT IN (SELECT ledger FROM left_out)
GROUP BY store
ORDER BY store
