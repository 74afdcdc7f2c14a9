-- The copies that are required: for each group the stores of its write set, exploded from the segments.
-- Position i of the write set of entry e is the member (e + i) mod E of the ensemble.
SELECT g.ledger, g.span, g.residue, q.number AS place, m.store
FROM groups AS g
JOIN ensembles AS e ON e.ledger = g.ledger
JOIN numbers AS q ON q.number < e.write_quorum
JOIN members AS m
    ON m.ledger = g.ledger AND m.first_entry = g.segment AND m.place = (g.residue + q.number) % e.size
