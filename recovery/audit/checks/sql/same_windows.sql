-- The bytes of the windows about which logs and index agree.
SELECT w.store, w.file, CAST(sum(w.size) AS BIGINT) AS size
FROM windows AS w
LEFT JOIN differing AS d ON d.store = w.store AND d.ledger = w.ledger AND d.number = w.number
WHERE d.ledger IS NULL
GROUP BY w.store, w.file
