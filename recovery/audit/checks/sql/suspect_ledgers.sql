-- Ledgers whose copies have to be compared entry by entry, because fingerprints differ or cannot decide.
-- Runs of one ledger and residue that overlap, on any stores, form a cluster. All members of the write set
-- that have runs in it must have the same number of entries and the same fingerprint. A member that has
-- nothing in the cluster is not compared, because missing copies are found elsewhere. Fingerprints cannot
-- decide about entries that a store's files hold twice (`is_twice`), runs across a change of the ensemble in
-- which their store moved, a store that serves something else than its files hold, and unreadable entries.
WITH filed AS (
    SELECT
        ledger, residue, store, first_turn, last_turn, good, digests,
        coalesce(max(last_turn) OVER (
            PARTITION BY ledger, residue, store ORDER BY first_turn, last_turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) >= first_turn, FALSE) AS is_twice
    FROM stripes WHERE is_in_files
), homed AS (
    SELECT f.*, h.place, f.last_turn > h.last_turn AS is_across
    FROM filed AS f
    JOIN homes AS h
        ON h.ledger = f.ledger AND h.residue = f.residue AND h.store = f.store
        AND f.first_turn BETWEEN h.first_turn AND h.last_turn
), reached AS (
    SELECT
        *,
        max(last_turn) OVER (
            PARTITION BY ledger, residue ORDER BY first_turn, last_turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reach
    FROM homed WHERE place >= 0 AND NOT is_across
), clustered AS (
    -- Equal rows come in any order, so that they have to be counted together: RANGE, not ROWS.
    SELECT
        *,
        sum(CASE WHEN first_turn <= reach THEN 0 ELSE 1 END) OVER (
            PARTITION BY ledger, residue ORDER BY first_turn, last_turn
            RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS cluster
    FROM reached
), summed AS (
    SELECT
        ledger, residue, cluster, place,
        sum(good) AS good, bit_xor(digests) AS digests, max(is_twice) AS is_twice
    FROM clustered GROUP BY ledger, residue, cluster, place
), other_than_served AS (
    SELECT ledger, residue, store, first_turn, last_turn
    FROM islands WHERE side = 'files' OR store IN (SELECT store FROM stores WHERE is_indexed)
    GROUP BY ledger, residue, store, first_turn, last_turn HAVING count(*) = 1
)
SELECT ledger FROM summed
GROUP BY ledger, residue, cluster
HAVING count(*) > 1
    AND (min(good) <> max(good) OR min(digests) <> max(digests) OR max(is_twice))
UNION
SELECT h.ledger FROM homed AS h JOIN ensembles AS e ON e.ledger = h.ledger
WHERE h.is_across AND e.write_quorum > 1
UNION
SELECT ledger FROM stripes WHERE is_in_files AND bad > 0
UNION
SELECT ledger FROM other_than_served
