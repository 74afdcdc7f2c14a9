package interop;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.LedgerDirsManager;
import org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.util.DiskChecker;

/** How a bookie is set up over a directory that holds `journal` and `ledgers`. */
final class Bookies {
    private static final float ALWAYS_WRITABLE = 0.999f;
    private static final int NEVER = Integer.MAX_VALUE;

    private Bookies() {
    }

    static ObjectNode version() {
        Package server = BookieImpl.class.getPackage();
        String version = BookieImpl.class.getProtectionDomain().getCodeSource().getLocation().getPath()
                .replaceAll(".*-(\\d[^/]*)\\.jar", "$1");
        return Main.JSON.createObjectNode().put("server", server.getName()).put("version", version);
    }

    static ServerConfiguration configure(String root) {
        return configure(root, DbLedgerStorage.class.getName());
    }

    static ServerConfiguration configure(String root, String storageClass) {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setJournalDirName(root + "/journal");
        conf.setLedgerDirNames(new String[] {root + "/ledgers"});
        conf.setLedgerStorageClass(storageClass);
        conf.setAdvertisedAddress("127.0.0.1");
        conf.setAllowLoopback(true);
        conf.setProperty("journalPreAllocSizeMB", 1);
        conf.setMaxJournalSizeMB(1);
        conf.setEntryLogSizeLimit(256 * 1024);
        // Only the workload causes work: no timers, and the disk never counts as full.
        conf.setFlushInterval(NEVER);
        conf.setGcWaitTime(NEVER);
        conf.setMinorCompactionInterval(-1);
        conf.setMajorCompactionInterval(-1);
        conf.setDiskCheckInterval(NEVER);
        conf.setDiskUsageThreshold(ALWAYS_WRITABLE);
        conf.setDiskUsageWarnThreshold(ALWAYS_WRITABLE);
        conf.setMinUsableSizeForEntryLogCreation(0);
        conf.setProperty(DbLedgerStorage.WRITE_CACHE_MAX_SIZE_MB, 16);
        conf.setProperty(DbLedgerStorage.READ_AHEAD_CACHE_MAX_SIZE_MB, 4);
        // Read-ahead would cache an older copy later in the log even if the index has a newer one.
        conf.setProperty("dbStorage_readAheadCacheBatchSize", 0);
        conf.setProperty(DbLedgerStorage.DIRECT_IO_ENTRYLOGGER_TOTAL_WRITEBUFFER_SIZE_MB, 4);
        conf.setProperty(DbLedgerStorage.DIRECT_IO_ENTRYLOGGER_TOTAL_READBUFFER_SIZE_MB, 32);
        conf.setProperty(DbLedgerStorage.DIRECT_IO_ENTRYLOGGER_READBUFFER_SIZE_MB, 1);
        conf.setProperty("dbStorage_rocksDB_blockCacheSize", 1 << 20);
        conf.setProperty("dbStorage_rocksDB_writeBufferSizeMB", 1);
        return conf;
    }

    static LedgerDirsManager ledgerDirectories(ServerConfiguration conf) throws IOException {
        return new LedgerDirsManager(conf, conf.getLedgerDirs(), new DiskChecker(ALWAYS_WRITABLE, ALWAYS_WRITABLE));
    }

    static File ledgers(ServerConfiguration conf) {
        return BookieImpl.getCurrentDirectory(conf.getLedgerDirs()[0]);
    }

    static File journal(ServerConfiguration conf) {
        return BookieImpl.getCurrentDirectory(conf.getJournalDirs()[0]);
    }
}
