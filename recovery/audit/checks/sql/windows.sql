-- What logs and indexes have of each window of ids, by log.
SELECT
    s.store, s.ledger, s.number, s.file,
    CAST(sum(s.entries) AS BIGINT) AS entries,
    CAST(sum(s.size) AS BIGINT) AS size,
    bit_xor(s.places) = 0 AND sum(CASE WHEN s.is_index THEN -s.entries ELSE s.entries END) = 0 AS agree,
    min(CASE WHEN NOT s.is_index THEN s.begin_offset END) AS begin_offset,
    max(s.end_offset) AS end_offset
FROM window_sums AS s
GROUP BY s.store, s.ledger, s.number, s.file
