package org.apache.bookkeeper.bookie;

import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;

/** The ledgers map of a log as it is written there: the public way falls back to a scan without saying so. */
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
