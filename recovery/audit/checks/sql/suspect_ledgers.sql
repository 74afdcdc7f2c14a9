-- Ledgers whose copies have to be compared entry by entry, because fingerprints differ or cannot decide.
-- Runs of one ledger and residue that overlap, on any stores, form a cluster. All members of the write set
-- that have runs in it must have the same number of entries and the same fingerprint. A member that has
-- nothing in the cluster is not compared, because missing copies are found elsewhere. Fingerprints cannot
-- decide about entries that a store's files hold twice (`is_twice`), runs across a change of the ensemble in
-- which their store moved, a store that serves something else than its files hold, and unreadable entries.
WITH filed AS (
    SELECT
        ledger, residue, store, first_turn, last_turn, good, digests,
        row_number() OVER w AS number,
        coalesce(max(last_turn) OVER (
            PARTITION BY ledger, residue, store ORDER BY first_turn, last_turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) >= first_turn, FALSE) AS is_twice
    FROM stripes WHERE is_in_files
    WINDOW w AS (PARTITION BY ledger, residue, store ORDER BY first_turn, last_turn)
), crossings AS (
    SELECT
        f.ledger, f.residue, f.store, f.number, min(f.first_turn) AS first_turn,
        max(f.last_turn) AS last_turn, min(f.good) AS good, min(f.digests) AS digests,
        max(f.is_twice) AS is_twice,
        min(coalesce(d.place, -1)) AS place, max(coalesce(d.place, -1)) AS last_place,
        count(g.segment) AS segments
    FROM filed AS f
    JOIN groups AS g
        ON g.ledger = f.ledger AND g.residue = f.residue
        AND g.first_turn <= f.last_turn AND g.last_turn >= f.first_turn
    LEFT JOIN due AS d
        ON d.ledger = g.ledger AND d.span = g.span AND d.residue = g.residue AND d.store = f.store
    GROUP BY f.ledger, f.residue, f.store, f.number
), compared AS (
    SELECT
        *,
        max(last_turn) OVER (
            PARTITION BY ledger, residue ORDER BY first_turn, last_turn, store, number
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reach
    FROM crossings WHERE place = last_place AND place >= 0
), clustered AS (
    SELECT
        *,
        sum(CASE WHEN first_turn <= reach THEN 0 ELSE 1 END) OVER (
            PARTITION BY ledger, residue ORDER BY first_turn, last_turn, store, number
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS cluster
    FROM compared
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
SELECT c.ledger FROM crossings AS c JOIN ensembles AS e ON e.ledger = c.ledger
WHERE c.place <> c.last_place AND c.segments > 0 AND e.write_quorum > 1
UNION
SELECT ledger FROM stripes WHERE is_in_files AND bad > 0
UNION
SELECT ledger FROM other_than_served
