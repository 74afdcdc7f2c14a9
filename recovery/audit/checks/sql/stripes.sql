-- Every run of a ledger that has ensembles, as intervals of turns. Entry e of a ledger with step s has the
-- residue e mod s and the turn e div s. All entries of one residue are on the same stores, so that a store
-- holds an unbroken interval of turns whatever share of the ledger it holds. A run with a smaller step is
-- divided by residue, and then each interval carries the fingerprint of the whole run. The hint is for Spark:
-- all that follows compares rows of one ledger and residue, so that they are shuffled once.
WITH striped AS (
    SELECT c.*, e.step AS ledger_step
    FROM copies AS c JOIN ensembles AS e ON e.ledger = c.ledger
), divided AS (
    SELECT *, first_entry AS begin_entry FROM striped WHERE step = ledger_step OR entries = 1
    UNION ALL
    SELECT s.*, s.first_entry + n.number * s.step AS begin_entry
    FROM striped AS s JOIN numbers AS n
        ON n.number < div(s.ledger_step, s.step) AND n.number * s.step <= s.last_entry - s.first_entry
    WHERE s.step <> s.ledger_step AND s.entries <> 1
)
SELECT /*+ REPARTITION(ledger, residue) */
    store, is_served, is_in_files, is_indexed, ledger,
    begin_entry % ledger_step AS residue,
    div(begin_entry, ledger_step) AS first_turn,
    div(begin_entry, ledger_step) + div(last_entry - begin_entry, ledger_step) AS last_turn,
    entries - bad AS good,
    digests,
    bad
FROM divided
