-- What the ledgers map of each log says of each ledger, and the offset of the record that says it. The map may
-- be after the durable end of a log, where no entry counts.
SELECT p.store, g.file, m.ledger, CAST(sum(m.size) AS BIGINT) AS described, min(m.record) AS record
FROM mapped AS m
JOIN parts AS p ON p.part = m.part AND p.source IN ('log', 'after')
JOIN logs AS g ON g.store = p.store AND g.file = m.file AND g.map_offset > 0 AND m.record >= g.map_offset
GROUP BY p.store, g.file, m.ledger
