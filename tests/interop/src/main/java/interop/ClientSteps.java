package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.LedgerHandleAdv;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LastConfirmedAndEntry;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * What an application does with ledgers, step by step, with the unmodified client.
 *
 * <p>Each step prints one line without ids, addresses and times, so that the output on other bookies can be compared
 * line by line.
 *
 * <p>Arguments: the metadata service URI, v2 or v3, and for TLS the PEM files of the authority, the client's key and its
 * certificate.
 */
public final class ClientSteps {
    private static final byte[] PASSWORD = "secret".getBytes(StandardCharsets.UTF_8);

    private final BookKeeper client;
    private final boolean isV2;

    private ClientSteps(BookKeeper client, boolean isV2) {
        this.client = client;
        this.isV2 = isV2;
    }

    public static void main(String[] arguments) throws Exception {
        try (BookKeeper client = new BookKeeper(configuration(arguments))) {
            new ClientSteps(client, arguments[1].equals("v2")).run();
        }
        System.exit(0);
    }

    /** What the arguments say. */
    static ClientConfiguration configuration(String[] arguments) {
        boolean isV2 = arguments[1].equals("v2");
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(arguments[0]);
        configuration.setUseV2WireProtocol(isV2);
        configuration.setExplictLacInterval(isV2 ? 0 : 100);
        if (arguments.length > 2) {
            configuration.setTLSProviderFactoryClass("org.apache.bookkeeper.tls.TLSContextFactory");
            configuration.setTLSTrustStoreType("PEM");
            configuration.setTLSTrustStore(arguments[2]);
            configuration.setTLSClientAuthentication(true);
            configuration.setTLSKeyStoreType("PEM");
            configuration.setTLSKeyStore(arguments[3]);
            configuration.setTLSCertificatePath(arguments[4]);
        }
        return configuration;
    }

    interface Step {
        Object run() throws Exception;
    }

    static void step(String name, Step step) {
        Object found;
        try {
            found = step.run();
        } catch (Exception error) {
            Throwable cause = error.getCause() != null && !(error instanceof BKException) ? error.getCause() : error;
            found = "raised " + cause.getClass().getSimpleName();
        }
        System.out.println(name + ": " + found);
    }

    private LedgerHandle create(int ensemble, int write, int ack) throws Exception {
        return client.createLedger(ensemble, write, ack, BookKeeper.DigestType.CRC32C, PASSWORD);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String texts(Enumeration<LedgerEntry> entries) {
        List<String> found = new ArrayList<>();
        while (entries.hasMoreElements()) {
            LedgerEntry entry = entries.nextElement();
            byte[] payload = entry.getEntry();
            String text = payload.length > 40 ? payload.length + " bytes" : new String(payload, StandardCharsets.UTF_8);
            found.add(entry.getEntryId() + "=" + text + "/" + entry.getLength());
        }
        return found.toString();
    }

    private LedgerHandle open(long id) throws Exception {
        return client.openLedger(id, BookKeeper.DigestType.CRC32C, PASSWORD);
    }

    private LedgerHandle look(long id) throws Exception {
        return client.openLedgerNoRecovery(id, BookKeeper.DigestType.CRC32C, PASSWORD);
    }

    private void run() throws Exception {
        LedgerHandle first = create(3, 3, 2);
        step("add one by one", () -> {
            List<Long> ids = new ArrayList<>();
            for (int number = 0; number < 10; number++) {
                ids.add(first.addEntry(bytes("entry " + number)));
            }
            return ids;
        });
        step("add a thousand at once", () -> {
            CountDownLatch left = new CountDownLatch(1000);
            List<Integer> codes = new ArrayList<>();
            for (int number = 0; number < 1000; number++) {
                first.asyncAddEntry(bytes("more " + number), (code, handle, id, context) -> {
                    synchronized (codes) {
                        if (code != BKException.Code.OK) {
                            codes.add(code);
                        }
                    }
                    left.countDown();
                }, null);
            }
            return left.await(60, TimeUnit.SECONDS) + " " + codes + " " + first.getLastAddConfirmed();
        });
        step("read the first", () -> texts(first.readEntries(0, 4)));
        step("read many", () -> {
            Enumeration<LedgerEntry> entries = first.readEntries(0, 1009);
            int count = 0;
            long size = 0;
            while (entries.hasMoreElements()) {
                size += entries.nextElement().getEntry().length;
                count++;
            }
            return count + " entries, " + size + " bytes";
        });
        // It comes with an entry, which carries what was confirmed when it was sent.
        step("last add confirmed from the bookies", () -> first.readLastConfirmed() >= 9);
        LedgerHandle tail = look(first.getId());
        step("open without recovery", () -> (tail.getLastAddConfirmed() >= 9) + " closed " + tail.isClosed());
        step("read by a tailing reader", () -> texts(tail.readEntries(3, 4)));
        step("read beyond what is confirmed", () -> texts(tail.readEntries(2000, 2001)));
        step("read unconfirmed", () -> texts(tail.readUnconfirmedEntries(5, 6)));
        step("entry of 1 MiB", () -> first.addEntry(new byte[1 << 20]));
        step("read the entry of 1 MiB", () -> texts(first.readEntries(1010, 1010)));
        step("poll for a new entry", () -> {
            long known = tail.readLastConfirmed();
            CompletableFuture<LastConfirmedAndEntry> polled = tail.readLastAddConfirmedAndEntryAsync(known + 1, 20_000, false);
            first.addEntry(bytes("awaited"));
            first.addEntry(bytes("after it"));
            LastConfirmedAndEntry found = polled.get(30, TimeUnit.SECONDS);
            boolean hasEntry = found.getEntry() != null;
            return hasEntry + " " + (found.getLastAddConfirmed() > known);
        });
        step("poll in vain", () -> {
            long known = tail.readLastConfirmed();
            LastConfirmedAndEntry found =
                    tail.readLastAddConfirmedAndEntryAsync(known + 5, 300, false).get(30, TimeUnit.SECONDS);
            return found.getEntry() != null;
        });
        // Version 3 has no batch read: the client would wait for ever.
        step("batch read", () -> {
            try (ReadHandle reader = client.newOpenLedgerOp().withLedgerId(first.getId()).withPassword(PASSWORD)
                    .withDigestType(DigestType.CRC32C).withRecovery(false).execute().get()) {
                List<String> found = new ArrayList<>();
                try (LedgerEntries entries = isV2 ? reader.batchRead(0, 5, 1 << 20) : reader.read(0, 4)) {
                    entries.forEach(entry -> found.add(new String(entry.getEntryBytes(), StandardCharsets.UTF_8)));
                }
                return found;
            }
        });
        step("open with another password", () ->
                client.openLedger(first.getId(), BookKeeper.DigestType.CRC32C, bytes("wrong")));
        step("take over", () -> {
            LedgerHandle taken = open(first.getId());
            return taken.getLastAddConfirmed() + " closed " + taken.isClosed() + " length " + taken.getLength();
        });
        step("add after the take-over", () -> first.addEntry(bytes("too late")));
        step("read what was taken over", () -> texts(open(first.getId()).readEntries(1011, 1012)));
        LedgerHandle empty = create(3, 2, 2);
        step("take over an empty ledger", () -> {
            LedgerHandle taken = open(empty.getId());
            return taken.getLastAddConfirmed() + " length " + taken.getLength();
        });
        step("add to it", () -> empty.addEntry(bytes("too late")));
        step("close in order", () -> {
            LedgerHandle ledger = create(2, 2, 1);
            ledger.addEntry(bytes("only"));
            ledger.close();
            LedgerHandle closed = open(ledger.getId());
            return closed.getLastAddConfirmed() + " length " + closed.getLength() + " " + texts(closed.readEntries(0, 0));
        });
        for (BookKeeper.DigestType kind : BookKeeper.DigestType.values()) {
            step("digest " + kind, () -> {
                LedgerHandle ledger = client.createLedger(3, 3, 2, kind, PASSWORD);
                for (int number = 0; number < 5; number++) {
                    ledger.addEntry(bytes("with a digest " + number));
                }
                LedgerHandle taken = client.openLedger(ledger.getId(), kind, PASSWORD);
                return texts(taken.readEntries(0, 4));
            });
        }
        step("entries with ids of the caller", () -> {
            LedgerHandleAdv ledger = (LedgerHandleAdv) client.createLedgerAdv(
                    3, 3, 2, BookKeeper.DigestType.CRC32C, PASSWORD);
            CountDownLatch left = new CountDownLatch(3);
            for (long id : new long[] {2, 0, 1}) {
                ledger.asyncAddEntry(id, bytes("given " + id), (code, handle, entry, context) -> left.countDown(), null);
            }
            boolean isDone = left.await(30, TimeUnit.SECONDS);
            ledger.close();
            return isDone + " " + texts(open(ledger.getId()).readEntries(0, 2));
        });
        step("deferred sync", () -> {
            WriteHandle ledger = client.newCreateLedgerOp().withEnsembleSize(3).withWriteQuorumSize(3)
                    .withAckQuorumSize(2).withPassword(PASSWORD).withDigestType(DigestType.CRC32C)
                    .withWriteFlags(WriteFlag.DEFERRED_SYNC).execute().get();
            long last = -1;
            for (int number = 0; number < 5; number++) {
                last = ledger.append(bytes("deferred " + number));
            }
            ledger.force().get(30, TimeUnit.SECONDS);
            long confirmed = ledger.getLastAddConfirmed();
            ledger.close();
            return last + " " + confirmed;
        });
        step("explicit last add confirmed", () -> {
            LedgerHandle ledger = create(3, 3, 2);
            ledger.addEntry(bytes("zero"));
            ledger.addEntry(bytes("one"));
            LedgerHandle reader = look(ledger.getId());
            long found = -1;
            for (int attempt = 0; attempt < (isV2 ? 1 : 100) && found < 1; attempt++) {
                found = reader.readExplicitLastConfirmed();
                if (found < 1) {
                    TimeUnit.MILLISECONDS.sleep(100);
                }
            }
            ledger.close();
            return found;
        });
        step("delete", () -> {
            LedgerHandle ledger = create(3, 3, 2);
            ledger.addEntry(bytes("gone"));
            ledger.close();
            client.deleteLedger(ledger.getId());
            return open(ledger.getId());
        });
        step("disks", () -> {
            long free = 0;
            for (var one : client.getBookieInfo().values()) {
                free += one.getFreeDiskSpace() > 0 && one.getTotalDiskSpace() >= one.getFreeDiskSpace() ? 1 : 0;
            }
            return free;
        });
    }
}
