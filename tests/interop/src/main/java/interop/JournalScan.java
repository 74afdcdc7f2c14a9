package interop;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.bookkeeper.bookie.Journal;
import org.apache.bookkeeper.bookie.LogMark;
import org.apache.bookkeeper.conf.ServerConfiguration;

/** Lists every journal of a directory with `Journal.scanJournal`, and returns the directory's mark. */
final class JournalScan {
    private static final int IDS_SIZE = 16;

    private JournalScan() {
    }

    static ObjectNode of(String root) throws IOException {
        ServerConfiguration conf = Bookies.configure(root);
        Journal journal = new Journal(0, Bookies.journal(conf), conf, Bookies.ledgerDirectories(conf));
        LogMark mark = journal.getLastLogMark().getCurMark();
        ObjectNode answer = Main.JSON.createObjectNode();
        answer.putArray("mark").add(mark.getLogFileId()).add(mark.getLogFileOffset());
        ArrayNode journals = answer.putArray("journals");
        for (long id : Journal.listJournalIds(journal.getJournalDirectory(), null)) {
            scan(journal, id, journals.addObject().put("journal", id));
        }
        return answer;
    }

    /** `records`: offset of the length word, ledger, entry id, size, SHA-256 of the record's bytes. */
    private static void scan(Journal journal, long id, ObjectNode found) {
        ArrayNode records = found.putArray("records");
        try {
            long end = journal.scanJournal(id, 0, (version, offset, record) -> {
                found.put("version", version);
                add(records.addArray().add(offset), record);
            }, false);
            found.put("end", end);
        } catch (IOException | RuntimeException | OutOfMemoryError problem) {
            // A damaged length word may have any value.
            found.put("problem", problem.toString());
        }
    }

    private static void add(ArrayNode row, ByteBuffer record) {
        byte[] bytes = Bytes.of(record);
        if (bytes.length < IDS_SIZE) {
            throw new IllegalArgumentException("a record of " + bytes.length + " bytes");
        }
        ByteBuffer ids = ByteBuffer.wrap(bytes);
        row.add(ids.getLong()).add(ids.getLong()).add(bytes.length).add(Bytes.sha256(bytes));
    }
}
