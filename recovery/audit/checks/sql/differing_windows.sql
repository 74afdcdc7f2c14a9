-- The windows that are compared, with the part of each log in which their entries are.
SELECT
    w.store, w.ledger, w.number, w.file, w.entries, coalesce(w.begin_offset, 0) AS begin_offset, w.end_offset
FROM windows AS w
JOIN differing AS d ON d.store = w.store AND d.ledger = w.ledger AND d.number = w.number
ORDER BY w.store, w.ledger, w.number, w.file
