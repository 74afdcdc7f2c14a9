-- The ledgers with gaps of the stores in which each of them is named.
SELECT g.* FROM gaps AS g WHERE g.store IN (SELECT store FROM naming_stores) ORDER BY g.store, g.ledger
