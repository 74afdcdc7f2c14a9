package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Adds and reads with the unmodified client as fast as it can, for a benchmark that compares bookies.
 *
 * <p>One process serves all clusters, so that its code is compiled equally well for each of them. A command is a line on
 * stdin, and its answer a line on stdout:
 *
 * <pre>
 *   open NAME URI v2|v3                      a client for a cluster; answers with 0
 *   add NAME COUNT SIZE IN_FLIGHT [E QW QA]  a new ledger, on one bookie or with these quorums, and its close; answers
 *                                            with nanoseconds of the adds
 *   read NAME COUNT AT_ONCE                  the first entries of the last ledger, in order; answers with nanoseconds
 *   recover NAME LEDGER                      opens a ledger that has no writer any more; answers with nanoseconds
 * </pre>
 */
public final class ClientSpeed {
    private static final byte[] PASSWORD = "secret".getBytes(StandardCharsets.UTF_8);

    private final Map<String, BookKeeper> clients = new HashMap<>();
    private final Map<String, Long> lastLedgers = new HashMap<>();

    private ClientSpeed() {
    }

    public static void main(String[] arguments) throws Exception {
        ClientSpeed speed = new ClientSpeed();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(speed.obey(line.split(" ")));
        }
        System.exit(0);
    }

    private long obey(String[] words) throws Exception {
        String name = words[1];
        switch (words[0]) {
            case "open":
                ClientConfiguration configuration = new ClientConfiguration();
                configuration.setMetadataServiceUri(words[2]);
                configuration.setUseV2WireProtocol(words[3].equals("v2"));
                configuration.setThrottleValue(0); // otherwise 5,000 requests a second
                clients.put(name, new BookKeeper(configuration));
                return 0;
            case "add":
                int[] quorums = {1, 1, 1};
                if (words.length > 5) {
                    quorums = Arrays.stream(words, 5, 8).mapToInt(Integer::parseInt).toArray();
                }
                return add(
                        name, Integer.parseInt(words[2]), Integer.parseInt(words[3]), Integer.parseInt(words[4]), quorums);
            case "recover":
                return recover(name, Long.parseLong(words[2]));
            case "read":
                return read(name, Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private long add(String name, int count, int size, int inFlight, int[] quorums) throws Exception {
        LedgerHandle ledger = clients.get(name)
                .createLedger(quorums[0], quorums[1], quorums[2], BookKeeper.DigestType.CRC32C, PASSWORD);
        lastLedgers.put(name, ledger.getId());
        byte[] payload = new byte[size];
        Arrays.fill(payload, (byte) 'x');
        Semaphore places = new Semaphore(inFlight);
        AtomicInteger failures = new AtomicInteger();
        long started = System.nanoTime();
        for (int entry = 0; entry < count; entry++) {
            places.acquire();
            ledger.asyncAddEntry(payload, (code, handle, id, context) -> {
                if (code != BKException.Code.OK) {
                    failures.incrementAndGet();
                }
                places.release();
            }, null);
        }
        places.acquire(inFlight);
        long nanoseconds = System.nanoTime() - started;
        ledger.close();
        if (failures.get() > 0) {
            throw new IllegalStateException(failures + " adds have failed");
        }
        return nanoseconds;
    }

    private long recover(String name, long id) throws Exception {
        long started = System.nanoTime();
        LedgerHandle ledger = clients.get(name).openLedger(id, BookKeeper.DigestType.CRC32C, PASSWORD);
        long nanoseconds = System.nanoTime() - started;
        long last = ledger.getLastAddConfirmed();
        ledger.close();
        if (last < 0) {
            throw new IllegalStateException("the ledger is empty");
        }
        return nanoseconds;
    }

    private long read(String name, int count, int atOnce) throws Exception {
        LedgerHandle ledger =
                clients.get(name).openLedger(lastLedgers.get(name), BookKeeper.DigestType.CRC32C, PASSWORD);
        long bytes = 0;
        long started = System.nanoTime();
        for (int first = 0; first < count; first += atOnce) {
            Enumeration<LedgerEntry> entries = ledger.readEntries(first, Math.min(first + atOnce, count) - 1);
            while (entries.hasMoreElements()) {
                bytes += entries.nextElement().getEntry().length;
            }
        }
        long nanoseconds = System.nanoTime() - started;
        ledger.close();
        if (bytes == 0) {
            throw new IllegalStateException("nothing was read");
        }
        return nanoseconds;
    }
}
