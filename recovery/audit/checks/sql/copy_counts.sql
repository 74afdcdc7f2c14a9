-- How many of the required entries of each ledger have how many copies.
SELECT ledger, copies, sum(CAST(last_turn - first_turn + 1 AS DECIMAL(38, 0))) AS entries
FROM pieces
GROUP BY ledger, copies
