-- The steps of the runs that are compared, as a set of bits.
SELECT r.comparison, r.store, r.scope, r.ledger, bit_or(b.bit) AS steps
FROM id_runs AS r JOIN step_bits AS b ON b.step = r.step
GROUP BY r.comparison, r.store, r.scope, r.ledger
