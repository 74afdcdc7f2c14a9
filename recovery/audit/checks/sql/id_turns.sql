-- The same runs as intervals of turns. The runs of a ledger may have different steps, so that all are divided
-- by their least common multiple: entry e of a ledger with step s has the residue e mod s and the turn e div s.
WITH stepped AS (
    SELECT r.*, m.step AS ledger_step
    FROM id_runs AS r
    JOIN id_steps AS i
        ON i.comparison = r.comparison AND i.store = r.store AND i.scope = r.scope AND i.ledger = r.ledger
    JOIN multiples AS m ON m.steps = i.steps
), divided AS (
    SELECT *, first_entry AS begin_entry FROM stepped WHERE step = ledger_step OR first_entry = last_entry
    UNION ALL
    SELECT s.*, s.first_entry + n.number * s.step AS begin_entry
    FROM stepped AS s JOIN ordinals AS n
        ON n.number < div(s.ledger_step, s.step) AND n.number * s.step <= s.last_entry - s.first_entry
    WHERE s.step <> s.ledger_step AND s.first_entry <> s.last_entry
)
SELECT
    comparison, store, scope, is_wanted, file, ledger, ledger_step AS step,
    begin_entry % ledger_step AS residue,
    div(begin_entry, ledger_step) AS first_turn,
    div(begin_entry, ledger_step) + div(last_entry - begin_entry, ledger_step) AS last_turn
FROM divided
