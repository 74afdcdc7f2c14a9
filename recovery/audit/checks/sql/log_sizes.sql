-- The bytes of the records of each log, and those of the ledgers about which logs and index agree. Of the
-- other ledgers the comparison of entries shows which bytes are live.
SELECT
    p.store, p.file, CAST(sum(p.size) AS BIGINT) AS size,
    CAST(sum(CASE WHEN p.agree AND m.ledger IS NULL THEN p.size ELSE 0 END) AS BIGINT) AS live
FROM places AS p
JOIN audited_stores AS a ON a.store = p.store
LEFT JOIN mismatched AS m ON m.store = p.store AND m.ledger = p.ledger
WHERE a.is_indexed
GROUP BY p.store, p.file
