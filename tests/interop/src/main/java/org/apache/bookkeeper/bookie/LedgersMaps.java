package org.apache.bookkeeper.bookie;

import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;

/** Reads the ledgers map of a log. BookKeeper's public method would fall back to a scan without notice. */
public final class LedgersMaps {
    private LedgersMaps() {
    }

    /** Bytes per ledger. An exception says why the map is not accepted, or that there is none. */
    public static Map<Long, Long> read(DefaultEntryLogger logs, long logId) throws IOException {
        Map<Long, Long> sizes = new TreeMap<>();
        logs.extractEntryLogMetadataFromIndex(logId).getLedgersMap().forEach(sizes::put);
        return sizes;
    }
}
