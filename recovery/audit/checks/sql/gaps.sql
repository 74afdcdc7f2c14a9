-- Ledgers with missing ids between the first and the last of a residue: how many gaps, and how many entries.
WITH followed AS (
    SELECT
        *,
        lead(first_turn) OVER (PARTITION BY store, ledger, residue ORDER BY first_turn) AS next_turn
    FROM id_islands WHERE comparison = 'served'
)
SELECT
    store, ledger, min(step) AS step,
    count(next_turn) AS gaps,
    min(CASE WHEN next_turn IS NOT NULL THEN (last_turn + 1) * step + residue END) AS first_missing,
    max((next_turn - 1) * step + residue) AS last_missing,
    sum(CAST(next_turn - 1 - last_turn AS DECIMAL(38, 0))) AS missing,
    min(first_turn * step + residue) AS first_entry,
    max(last_turn * step + residue) AS last_entry
FROM followed
GROUP BY store, ledger
HAVING count(next_turn) > 0
