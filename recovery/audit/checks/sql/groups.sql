-- The groups: the entries of one span and one residue, which share their stores and their obligation.
WITH residues AS (
    SELECT s.*, e.step, n.number AS residue
    FROM spans AS s
    JOIN ensembles AS e ON e.ledger = s.ledger
    JOIN numbers AS n ON n.number < e.step
), turned AS (
    SELECT
        ledger, segment, owed, residue, first_entry AS span,
        div(first_entry, step) + CASE WHEN first_entry % step > residue THEN 1 ELSE 0 END AS first_turn,
        div(last_entry, step) - CASE WHEN last_entry % step < residue THEN 1 ELSE 0 END AS last_turn
    FROM residues
)
SELECT * FROM turned WHERE first_turn <= last_turn
