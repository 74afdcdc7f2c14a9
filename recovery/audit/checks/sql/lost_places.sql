-- Rows of a bookie's index that lead to other entries than their log has.
SELECT store, file, ledger, logged, indexed, first_entry, last_entry
FROM places
WHERE indexed > 0 AND NOT agree AND store IN (SELECT store FROM audited_stores WHERE has_bookie_index)
ORDER BY store, file, ledger
