-- How many ledgers the ledgers map of each log describes.
SELECT store, file, count(*) AS ledgers FROM described GROUP BY store, file
