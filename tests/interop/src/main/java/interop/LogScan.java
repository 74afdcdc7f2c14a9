package interop;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.buffer.ByteBuf;
import java.io.IOException;
import org.apache.bookkeeper.bookie.DefaultEntryLogger;
import org.apache.bookkeeper.bookie.LedgersMaps;
import org.apache.bookkeeper.bookie.storage.EntryLogScanner;
import org.apache.bookkeeper.conf.ServerConfiguration;

/** Lists every log of a directory with a bookie's entry logger: by a scan, and by the log's own map. */
final class LogScan {
    private static final int ENTRY_ID_OFFSET = 8;

    private LogScan() {
    }

    static ObjectNode of(String root) throws IOException {
        ServerConfiguration conf = Bookies.configure(root);
        DefaultEntryLogger logs = new DefaultEntryLogger(conf, Bookies.ledgerDirectories(conf));
        ObjectNode answer = Main.JSON.createObjectNode();
        ArrayNode found = answer.putArray("logs");
        try {
            for (long id : logs.getEntryLogsSet()) {
                scan(logs, id, found.addObject().put("log", id));
            }
        } finally {
            logs.close();
        }
        return answer;
    }

    /** `entries`: offset of the length word, ledger, entry id, size, SHA-256 of the entry's bytes. */
    private static void scan(DefaultEntryLogger logs, long id, ObjectNode found) {
        ArrayNode entries = found.putArray("entries");
        try {
            logs.scanEntryLog(id, new EntryLogScanner() {
                @Override
                public boolean accept(long ledgerId) {
                    return ledgerId >= 0;
                }

                @Override
                public void process(long ledgerId, long offset, ByteBuf entry) {
                    byte[] bytes = Bytes.of(entry);
                    long entryId = entry.getLong(ENTRY_ID_OFFSET);
                    entries.addArray().add(offset).add(ledgerId).add(entryId).add(bytes.length)
                            .add(Bytes.sha256(bytes));
                }
            });
        } catch (IOException | RuntimeException | OutOfMemoryError problem) {
            // A damaged length word may have any value.
            found.put("problem", problem.toString());
        }
        try {
            found.set("map", Main.JSON.valueToTree(LedgersMaps.read(logs, id)));
        } catch (IOException | RuntimeException none) {
            found.put("no_map", none.toString());
        }
    }
}
