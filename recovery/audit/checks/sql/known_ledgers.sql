-- The ledgers of which some parts have read an entry without finding a wrong digest.
SELECT DISTINCT s.ledger
FROM scanned AS s JOIN asked_parts AS a ON a.part = s.part
WHERE s.entries > s.bad
