-- Ranges of a ledger in which every entry has to be on the same stores for the same reason: the segments of
-- the ensembles, in an open ledger cut where the settled and the confirmed entries end, and the ranges before
-- the first segment and after the last entry of a closed ledger, in which no copy is required.
WITH segments AS (
    SELECT
        ledger,
        first_entry AS segment,
        coalesce(
            lead(first_entry) OVER (PARTITION BY ledger ORDER BY first_entry) - 1, 9223372036854775807
        ) AS last_entry
    FROM (SELECT DISTINCT ledger, first_entry FROM members) AS firsts
), obligations AS (
    SELECT ledger, 'closed' AS owed, CAST(0 AS BIGINT) AS first_entry, last_entry
    FROM ensembles WHERE last_entry IS NOT NULL
    UNION ALL
    SELECT ledger, 'open', 0, least(settled, confirmed) FROM ensembles WHERE last_entry IS NULL
    UNION ALL
    SELECT ledger, 'in flight', least(settled, confirmed) + 1, confirmed
    FROM ensembles WHERE last_entry IS NULL
    UNION ALL
    SELECT ledger, 'unconfirmed', confirmed + 1, 9223372036854775807
    FROM ensembles WHERE last_entry IS NULL
), required AS (
    SELECT
        s.ledger, s.segment, o.owed,
        greatest(s.segment, o.first_entry) AS first_entry,
        least(s.last_entry, o.last_entry) AS last_entry
    FROM segments AS s JOIN obligations AS o ON o.ledger = s.ledger
)
SELECT ledger, segment, owed, first_entry, last_entry FROM required WHERE first_entry <= last_entry
UNION ALL
SELECT ledger, CAST(NULL AS BIGINT), 'before', CAST(0 AS BIGINT), min(segment) - 1
FROM segments GROUP BY ledger HAVING min(segment) > 0
UNION ALL
SELECT e.ledger, CAST(NULL AS BIGINT), 'after', greatest(e.last_entry + 1, s.segment), 9223372036854775807
FROM ensembles AS e JOIN (SELECT ledger, min(segment) AS segment FROM segments GROUP BY ledger) AS s
    ON s.ledger = e.ledger
WHERE e.last_entry IS NOT NULL
