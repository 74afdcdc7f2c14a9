-- How many entries of some ledgers logs and journals have, and how many of these carry the right digest.
SELECT
    r.ledger,
    CAST(sum(CASE WHEN r.source IN ('log', 'leftover') THEN r.entries ELSE 0 END) AS BIGINT) AS logged,
    CAST(sum(CASE WHEN r.source IN ('log', 'leftover') THEN r.entries - r.bad ELSE 0 END) AS BIGINT) AS in_logs,
    CAST(sum(CASE WHEN r.source IN ('journal', 'before') THEN r.entries ELSE 0 END) AS BIGINT) AS journaled,
    CAST(sum(CASE WHEN r.source IN ('journal', 'before') THEN r.entries - r.bad ELSE 0 END) AS BIGINT)
        AS in_journals
FROM store_runs AS r JOIN asked_ledgers AS a ON a.ledger = r.ledger
GROUP BY r.ledger
