package interop;

import java.nio.charset.StandardCharsets;
import java.util.Enumeration;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * One ledger of the unmodified client, for a test that shares ledgers with a client of ours.
 *
 * <p>Arguments: the metadata service URI, v2 or v3, then one of
 *
 * <pre>
 *   write N     write a ledger of N entries and close it; prints "ledger ID"
 *   leave N     write a ledger of N entries and die without closing it; prints "ledger ID"
 *   read ID     read a ledger without recovery; prints "ID payload" for each entry, then "end LAST LENGTH"
 *   recover ID  the same after a recovery
 * </pre>
 */
public final class ClientLedgers {
    private static final byte[] PASSWORD = "secret".getBytes(StandardCharsets.UTF_8);

    private ClientLedgers() {
    }

    public static void main(String[] arguments) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(arguments[0]);
        configuration.setUseV2WireProtocol(arguments[1].equals("v2"));
        try (BookKeeper client = new BookKeeper(configuration)) {
            long number = Long.parseLong(arguments[3]);
            switch (arguments[2]) {
                case "write" -> write(client, number).close();
                case "leave" -> {
                    write(client, number);
                    Runtime.getRuntime().halt(0);
                }
                case "read" -> read(client.openLedgerNoRecovery(number, DigestType.CRC32C, PASSWORD));
                default -> read(client.openLedger(number, DigestType.CRC32C, PASSWORD));
            }
        }
    }

    private static LedgerHandle write(BookKeeper client, long count) throws Exception {
        LedgerHandle handle = client.createLedger(3, 3, 2, DigestType.CRC32C, PASSWORD);
        for (long entry = 0; entry < count; entry++) {
            handle.addEntry(("java " + entry).getBytes(StandardCharsets.UTF_8));
        }
        System.out.println("ledger " + handle.getId());
        System.out.flush();
        return handle;
    }

    private static void read(LedgerHandle handle) throws Exception {
        long last = handle.getLastAddConfirmed();
        if (last >= 0) {
            Enumeration<LedgerEntry> entries = handle.readEntries(0, last);
            while (entries.hasMoreElements()) {
                LedgerEntry entry = entries.nextElement();
                System.out.println(entry.getEntryId() + " " + new String(entry.getEntry(), StandardCharsets.UTF_8));
            }
        }
        System.out.println("end " + last + " " + handle.getLength());
    }
}
