-- Every required entry once, in pieces that are held by the same stores, with the number of required copies
-- that exist. An interval counts from the turn before its first one up to its last turn, so that no number
-- exceeds the largest id. Of an open ledger, entries that no store has and that nothing confirms are not
-- required.
WITH furthest AS (
    SELECT i.ledger, max(i.last_turn * e.step + i.residue) AS entry
    FROM islands AS i JOIN ensembles AS e ON e.ledger = i.ledger
    WHERE i.side = 'served' GROUP BY i.ledger
), required AS (
    SELECT
        g.ledger, g.span, g.residue, g.first_turn,
        CASE
            WHEN g.owed <> 'unconfirmed' THEN g.last_turn
            ELSE least(g.last_turn, coalesce(
                div(f.entry, e.step) - CASE WHEN f.entry % e.step < g.residue THEN 1 ELSE 0 END, -1
            ))
        END AS last_turn
    FROM groups AS g
    JOIN ensembles AS e ON e.ledger = g.ledger
    LEFT JOIN furthest AS f ON f.ledger = g.ledger
    WHERE g.segment IS NOT NULL
), changes AS (
    SELECT ledger, span, residue, first_turn - 1 AS turn, 0 AS copies FROM required
    WHERE first_turn <= last_turn
    UNION ALL
    SELECT ledger, span, residue, last_turn, 0 FROM required WHERE first_turn <= last_turn
    UNION ALL
    SELECT ledger, span, residue, first_turn - 1, CASE WHEN place IS NULL THEN 0 ELSE 1 END
    FROM placed WHERE segment IS NOT NULL
    UNION ALL
    SELECT ledger, span, residue, last_turn, CASE WHEN place IS NULL THEN 0 ELSE -1 END
    FROM placed WHERE segment IS NOT NULL
), bounds AS (
    SELECT ledger, span, residue, turn, sum(copies) AS copies
    FROM changes GROUP BY ledger, span, residue, turn
), cut AS (
    SELECT
        ledger, span, residue, turn,
        lead(turn) OVER (PARTITION BY ledger, span, residue ORDER BY turn) AS last_turn,
        CAST(sum(copies) OVER (
            PARTITION BY ledger, span, residue ORDER BY turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS BIGINT) AS copies
    FROM bounds
)
SELECT c.ledger, c.span, c.residue, g.segment, g.owed, c.turn + 1 AS first_turn, c.last_turn, c.copies
FROM cut AS c
JOIN groups AS g ON g.ledger = c.ledger AND g.span = c.span AND g.residue = c.residue
WHERE c.last_turn IS NOT NULL
