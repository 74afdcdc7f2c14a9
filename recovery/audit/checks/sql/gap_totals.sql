-- How many ledgers of each store have gaps, and how many entries they miss.
SELECT store, count(*) AS ledgers, sum(missing) AS missing FROM gaps GROUP BY store
