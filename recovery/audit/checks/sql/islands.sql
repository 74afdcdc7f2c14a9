-- The entries that each store serves, and those that the files of an indexed store hold, each entry once:
-- intervals that touch or overlap are joined.
WITH sided AS (
    SELECT s.side, t.ledger, t.residue, t.store, t.first_turn, t.last_turn
    FROM stripes AS t JOIN (SELECT 'served' AS side UNION ALL SELECT 'files') AS s
        ON s.side = 'served' AND t.is_served OR s.side = 'files' AND t.is_in_files AND t.is_indexed
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
