-- The entries that each store serves, and those that the files of an indexed store hold, each entry once:
-- intervals that touch or overlap are joined.
WITH sided AS (
    SELECT 'served' AS side, ledger, residue, store, first_turn, last_turn FROM stripes WHERE is_served
    UNION ALL
    SELECT 'files', ledger, residue, store, first_turn, last_turn FROM stripes
    WHERE is_in_files AND is_indexed
), reached AS (
    SELECT
        *,
        max(last_turn) OVER (
            PARTITION BY side, ledger, residue, store ORDER BY first_turn, last_turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reach
    FROM sided
), numbered AS (
    -- Equal rows come in any order, so that they have to be counted together: RANGE, not ROWS.
    SELECT
        *,
        sum(CASE WHEN first_turn - 1 <= reach THEN 0 ELSE 1 END) OVER (
            PARTITION BY side, ledger, residue, store ORDER BY first_turn, last_turn
            RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS island
    FROM reached
)
SELECT side, ledger, residue, store, min(first_turn) AS first_turn, max(last_turn) AS last_turn
FROM numbered
GROUP BY side, ledger, residue, store, island
