-- Open ledgers in which copies are missing after what is known to be confirmed. If more of such a ledger turns
-- out to be confirmed, these missing copies are more severe.
SELECT DISTINCT p.ledger
FROM pieces AS p JOIN ensembles AS e ON e.ledger = p.ledger
WHERE p.copies < e.write_quorum AND p.owed IN ('in flight', 'unconfirmed')
