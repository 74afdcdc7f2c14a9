-- The ids that are wanted in a comparison (`id_runs.sql`) and that its other side does not have.
WITH had AS (
    SELECT
        *,
        lag(last_turn) OVER w AS before_turn,
        lead(first_turn) OVER w AS next_turn
    FROM id_islands WHERE NOT is_wanted AND comparison <> 'served'
    WINDOW w AS (PARTITION BY comparison, store, scope, ledger, residue ORDER BY first_turn)
), holes AS (
    SELECT comparison, store, scope, ledger, residue, CAST(0 AS BIGINT) AS first_turn, first_turn - 1 AS last_turn
    FROM had WHERE before_turn IS NULL
    UNION ALL
    SELECT
        comparison, store, scope, ledger, residue, last_turn + 1, coalesce(next_turn - 1, 9223372036854775807)
    FROM had WHERE last_turn < 9223372036854775807
), lacking AS (
    SELECT
        w.comparison, w.store, w.scope, w.ledger, w.step, w.residue,
        greatest(w.first_turn, coalesce(h.first_turn, w.first_turn)) AS first_turn,
        least(w.last_turn, coalesce(h.last_turn, w.last_turn)) AS last_turn
    FROM id_islands AS w
    LEFT JOIN (SELECT DISTINCT comparison, store, scope, ledger, residue FROM had) AS t
        ON t.comparison = w.comparison AND t.store = w.store AND t.scope = w.scope AND t.ledger = w.ledger
        AND t.residue = w.residue
    LEFT JOIN holes AS h
        ON h.comparison = w.comparison AND h.store = w.store AND h.scope = w.scope AND h.ledger = w.ledger
        AND h.residue = w.residue AND h.first_turn <= w.last_turn AND h.last_turn >= w.first_turn
    WHERE w.is_wanted AND (t.ledger IS NULL OR h.ledger IS NOT NULL)
)
SELECT
    comparison, store, scope, ledger, step,
    first_turn * step + residue AS first_entry, last_turn * step + residue AS last_entry
FROM lacking
ORDER BY comparison, store, scope, ledger, first_entry, last_entry
