package interop;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Writes with the unmodified client while bookies are killed, then reads everything that was acknowledged.
 *
 * <p>Arguments: the metadata service URI, v2 or v3, seconds, the entries of a ledger if not 20,000, and the pause in
 * milliseconds after each 200 entries if there is to be one. A line of standard input ends the writing before the seconds
 * are over, and begins the reading. Each entry has its ledger, its id and a pattern as payload, so that a wrong one is
 * recognised. A writer that fails goes on with the next ledger, as an application does. The last line also says how many
 * calls have failed, so that a test can demand that a killed bookie is not noticed at all.
 */
public final class ClientLoad {
    private static final byte[] PASSWORD = "secret".getBytes(StandardCharsets.UTF_8);
    private static final int SIZE = 1024;
    private static final int IN_FLIGHT = 200;

    private static final AtomicLong FAILURES = new AtomicLong();

    private ClientLoad() {
    }

    /** One ledger, the largest id up to which every entry was acknowledged, and its end if its writer has closed it. */
    private static final class Written {
        private final LedgerHandle handle;
        private final AtomicLong acknowledged = new AtomicLong(-1);
        private volatile boolean hasFailed;
        private boolean isClosed;

        private Written(LedgerHandle handle) {
            this.handle = handle;
        }
    }

    private static byte[] payload(long ledger, long entry) {
        ByteBuffer bytes = ByteBuffer.allocate(SIZE);
        bytes.putLong(ledger).putLong(entry);
        while (bytes.hasRemaining()) {
            bytes.put((byte) (ledger * 31 + entry * 7 + bytes.position()));
        }
        return bytes.array();
    }

    public static void main(String[] arguments) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(arguments[0]);
        configuration.setUseV2WireProtocol(arguments[1].equals("v2"));
        List<Written> all = new ArrayList<>();
        try (BookKeeper client = new BookKeeper(configuration)) {
            int entries = arguments.length > 3 ? Integer.parseInt(arguments[3]) : 20_000;
            int pauseMs = arguments.length > 4 ? Integer.parseInt(arguments[4]) : 0;
            long endsAt = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(arguments[2]));
            System.out.println("writing");
            while (goesOn(endsAt)) {
                write(client, all, entries, pauseMs, endsAt);
            }
            System.out.println("written");
            System.in.read(); // the bookies are whole again
            check(client, all);
        }
        System.exit(0);
    }

    private static boolean goesOn(long endsAt) throws Exception {
        return System.nanoTime() < endsAt && System.in.available() == 0;
    }

    private static void write(BookKeeper client, List<Written> all, int entries, int pauseMs, long endsAt)
            throws Exception {
        Written written;
        try {
            written = new Written(client.createLedger(3, 3, 2, BookKeeper.DigestType.CRC32C, PASSWORD));
        } catch (BKException error) {
            FAILURES.incrementAndGet();
            TimeUnit.MILLISECONDS.sleep(200); // too few bookies at this moment
            return;
        }
        all.add(written);
        Semaphore places = new Semaphore(IN_FLIGHT);
        long ledger = written.handle.getId();
        for (long entry = 0; entry < entries && !written.hasFailed && goesOn(endsAt); entry++) {
            if (pauseMs > 0 && entry % IN_FLIGHT == 0) {
                TimeUnit.MILLISECONDS.sleep(pauseMs);
            }
            places.acquire();
            written.handle.asyncAddEntry(payload(ledger, entry), (code, handle, id, context) -> {
                if (code == BKException.Code.OK && !written.hasFailed) {
                    written.acknowledged.accumulateAndGet(id, Math::max);
                } else {
                    FAILURES.incrementAndGet();
                    written.hasFailed = true;
                }
                places.release();
            }, null);
        }
        places.acquire(IN_FLIGHT);
        try {
            written.handle.close();
            written.isClosed = true;
        } catch (BKException error) {
            FAILURES.incrementAndGet(); // it is taken over when it is read
        }
    }

    private static void check(BookKeeper client, List<Written> all) throws Exception {
        long acknowledged = 0;
        long lost = 0;
        long changed = 0;
        for (Written written : all) {
            long last = written.acknowledged.get();
            acknowledged += last + 1;
            LedgerHandle found = client.openLedger(written.handle.getId(), BookKeeper.DigestType.CRC32C, PASSWORD);
            if (found.getLastAddConfirmed() < last) {
                lost += last - found.getLastAddConfirmed();
            }
            for (long first = 0; first <= Math.min(last, found.getLastAddConfirmed()); first += 500) {
                long end = Math.min(first + 499, Math.min(last, found.getLastAddConfirmed()));
                Enumeration<LedgerEntry> entries = found.readEntries(first, end);
                while (entries.hasMoreElements()) {
                    LedgerEntry entry = entries.nextElement();
                    if (!java.util.Arrays.equals(entry.getEntry(), payload(written.handle.getId(), entry.getEntryId()))) {
                        changed++;
                    }
                }
            }
            long length = found.getLength();
            if (written.isClosed && (found.getLastAddConfirmed() != written.handle.getLastAddConfirmed()
                    || length != written.handle.getLength())) {
                changed++;
            }
            found.close();
            LedgerHandle again = client.openLedger(written.handle.getId(), BookKeeper.DigestType.CRC32C, PASSWORD);
            if (again.getLength() != length || again.getLastAddConfirmed() != found.getLastAddConfirmed()) {
                changed++;
            }
        }
        System.out.println("acknowledged " + acknowledged + " in " + all.size() + " ledgers, lost " + lost + ", changed "
                + changed + ", failures " + FAILURES.get());
    }
}
