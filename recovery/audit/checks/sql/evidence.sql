-- How many entries each part has read of some ledgers without finding a wrong digest. A journal has two
-- numbers for one part.
SELECT div(s.part, 2) * 2 AS part, s.ledger, CAST(sum(s.entries - s.bad) AS BIGINT) AS good
FROM scanned AS s JOIN asked_ledgers AS a ON a.ledger = s.ledger
GROUP BY div(s.part, 2) * 2, s.ledger
ORDER BY part, ledger
