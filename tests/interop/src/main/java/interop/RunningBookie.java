package interop;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.File;
import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.bookie.BookieException;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.BookieResources;
import org.apache.bookkeeper.bookie.CheckpointSource;
import org.apache.bookkeeper.bookie.CheckpointSource.Checkpoint;
import org.apache.bookkeeper.bookie.CheckpointSourceList;
import org.apache.bookkeeper.bookie.LedgerDirsManager;
import org.apache.bookkeeper.bookie.LedgerStorage;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.discover.BookieServiceInfo;
import org.apache.bookkeeper.proto.BookkeeperInternalCallbacks.WriteCallback;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.bookkeeper.util.DiskChecker;

/** A bookie that has replayed its journals and takes requests, without a network and without metadata. */
final class RunningBookie implements AutoCloseable {
    final BookieImpl bookie;
    final LedgerStorage storage;

    /** Thrown if a bookie does not start. The log has the reason. */
    static final class Refused extends IOException {
        private static final long serialVersionUID = 1;

        Refused(int exitCode) {
            super("the bookie did not start: exit code " + exitCode);
        }
    }

    RunningBookie(ServerConfiguration conf) throws IOException, InterruptedException, BookieException {
        for (File directory : new File[] {Bookies.journal(conf), Bookies.ledgers(conf)}) {
            BookieImpl.checkDirectoryStructure(directory);
        }
        UnpooledByteBufAllocator allocator = UnpooledByteBufAllocator.DEFAULT;
        DiskChecker disks = BookieResources.createDiskChecker(conf);
        LedgerDirsManager directories = Bookies.ledgerDirectories(conf);
        storage = BookieResources.createLedgerStorage(
                conf, null, directories, directories, NullStatsLogger.INSTANCE, allocator);
        bookie = new BookieImpl(conf, null, storage, disks, directories, directories,
                NullStatsLogger.INSTANCE, allocator, BookieServiceInfo.NO_INFO);
        bookie.start();
        if (!bookie.isRunning()) {
            // The bookie's own shutdown closes nothing if the bookie never ran.
            storage.shutdown();
            throw new Refused(bookie.getExitCode());
        }
        // A thread of its own starts the journals; a shutdown before that would not stop them.
        bookie.join();
    }

    /** Completes with BookKeeper's code when the entry is durable. */
    CompletableFuture<Integer> add(byte[] entry, byte[] masterKey) throws Exception {
        CompletableFuture<Integer> added = new CompletableFuture<>();
        bookie.addEntry(buffer(entry), false, completing(added), null, masterKey);
        return added;
    }

    CompletableFuture<Integer> recoveryAdd(byte[] entry, byte[] masterKey) throws Exception {
        CompletableFuture<Integer> added = new CompletableFuture<>();
        bookie.recoveryAddEntry(buffer(entry), completing(added), null, masterKey);
        return added;
    }

    CompletableFuture<Integer> setExplicitLac(byte[] packet, byte[] masterKey) throws Exception {
        CompletableFuture<Integer> stored = new CompletableFuture<>();
        bookie.setExplicitLac(buffer(packet), completing(stored), null, masterKey);
        return stored;
    }

    void fence(long ledgerId, byte[] masterKey) throws Exception {
        bookie.fenceLedger(ledgerId, masterKey).get();
    }

    /** Does what the bookie's own thread does after a replay, because `checkpoint` of the older storages leaves the active log out. */
    void checkpoint() throws IOException {
        CheckpointSource journals = new CheckpointSourceList(bookie.getJournals());
        Checkpoint reached = journals.newCheckpoint();
        storage.flush();
        journals.checkpointComplete(reached, true);
    }

    byte[] read(long ledgerId, long entryId) throws IOException, BookieException {
        ByteBuf entry = bookie.readEntry(ledgerId, entryId);
        try {
            return Bytes.of(entry);
        } finally {
            entry.release();
        }
    }

    @Override
    public void close() {
        bookie.shutdown();
    }

    private static ByteBuf buffer(byte[] bytes) {
        // A direct buffer of exactly the content's size, because the network layer passes such buffers to a bookie.
        return Unpooled.directBuffer(bytes.length, bytes.length).writeBytes(bytes);
    }

    private static WriteCallback completing(CompletableFuture<Integer> future) {
        return (code, ledgerId, entryId, address, context) -> future.complete(code);
    }
}
