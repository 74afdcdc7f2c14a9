-- Entries of a bookie that are in more than one log, or several times in one: what a run shares with runs that
-- begin before it.
WITH reached AS (
    SELECT
        *,
        max(last_turn) OVER (
            PARTITION BY store, ledger, residue ORDER BY first_turn, file, last_turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reach
    FROM id_turns WHERE comparison = 'logs'
)
SELECT
    store, file, ledger,
    min(first_turn * step + residue) AS first_entry,
    max(least(last_turn, reach) * step + residue) AS last_entry,
    sum(CAST(least(last_turn, reach) - first_turn + 1 AS DECIMAL(38, 0))) AS entries
FROM reached
WHERE first_turn <= reach
GROUP BY store, file, ledger
