-- The ids of both sides of each comparison, each id once: intervals that touch or overlap are joined.
WITH reached AS (
    SELECT
        *,
        max(last_turn) OVER (
            PARTITION BY comparison, store, scope, is_wanted, ledger, residue ORDER BY first_turn, last_turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reach
    FROM id_turns WHERE comparison <> 'logs'
), numbered AS (
    -- Equal rows come in any order, so that they have to be counted together: RANGE, not ROWS.
    SELECT
        *,
        sum(CASE WHEN first_turn - 1 <= reach THEN 0 ELSE 1 END) OVER (
            PARTITION BY comparison, store, scope, is_wanted, ledger, residue ORDER BY first_turn, last_turn
            RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS island
    FROM reached
)
SELECT
    comparison, store, scope, is_wanted, ledger, residue, min(step) AS step,
    min(first_turn) AS first_turn, max(last_turn) AS last_turn
FROM numbered
GROUP BY comparison, store, scope, is_wanted, ledger, residue, island
