package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * The unmodified client as a process. Each command is a line of its input. Each answer is a line of its
 * output with the `id` of the command; answers come in any order.
 *
 * <p>Arguments: the metadata service URI, v2 or v3, and the seconds after which a call to a bookie has failed. A command
 * names a session; each has a client of its own. Appends are begun in the order of the lines. An exception of the client
 * is an answer, too: {"raised": its name, "code": BookKeeper's code}. Ends when its input does.
 *
 * <p>An entry is a text; with `size` it is repeated to so many bytes, and such an entry is answered as its first line.
 */
public final class LedgerClient {
    private static final int CONTROL_CONNECTIONS_MS = 10_000;

    private final ClientConfiguration configuration;
    private final PrintStream answers;
    private final Map<String, Session> sessions = new ConcurrentHashMap<>();
    private final ExecutorService threads = Executors.newCachedThreadPool();

    private LedgerClient(ClientConfiguration configuration, PrintStream answers) {
        this.configuration = configuration;
        this.answers = answers;
    }

    /** One client, with the ledgers that it writes, has taken over or looks at. */
    private static final class Session {
        private final BookKeeper client;
        private final Map<Long, LedgerHandle> written = new ConcurrentHashMap<>();
        private final Map<Long, LedgerHandle> read = new ConcurrentHashMap<>();

        private Session(BookKeeper client) {
            this.client = client;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // A line that a library prints to standard output would be taken for an answer.
        System.setOut(System.err);
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(arguments[0]);
        configuration.setUseV2WireProtocol(arguments[1].equals("v2"));
        configuration.setAddEntryTimeout(Integer.parseInt(arguments[2]));
        configuration.setReadEntryTimeout(Integer.parseInt(arguments[2]));
        configuration.setZkTimeout(CONTROL_CONNECTIONS_MS);
        LedgerClient client = new LedgerClient(configuration, answers);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            client.take(Main.JSON.readTree(line));
        }
        System.exit(0);
    }

    private void take(JsonNode request) {
        Session session = sessions.get(request.get("session").asText());
        if (session != null && request.get("command").asText().equals("append")) {
            append(session, request);
            return;
        }
        threads.execute(() -> {
            try {
                answer(request, run(request));
            } catch (Throwable problem) {
                answer(request, raised(problem));
            }
        });
    }

    private synchronized void answer(JsonNode request, ObjectNode found) {
        ObjectNode answer = Main.JSON.createObjectNode();
        answer.set("id", request.get("id"));
        answer.set("answer", found);
        answers.println(answer);
    }

    private static ObjectNode raised(Throwable problem) {
        Throwable cause = problem;
        while (!(cause instanceof BKException) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        int code = cause instanceof BKException known ? known.getCode() : 0;
        return Main.JSON.createObjectNode().put("raised", cause.toString()).put("code", code);
    }

    private Session session(String name) {
        return sessions.computeIfAbsent(name, ignored -> {
            try {
                return new Session(new BookKeeper(configuration));
            } catch (Exception problem) {
                throw new IllegalStateException(problem);
            }
        });
    }

    private void append(Session session, JsonNode request) {
        LedgerHandle handle = session.written.get(request.get("ledger").asLong());
        if (handle == null) {
            answer(request, raised(new BKException.BKLedgerClosedException()));
            return;
        }
        byte[] data = data(request.get("text").asText(), request.get("size").asInt());
        handle.asyncAddEntry(data, (code, ledger, entry, context) -> {
            if (code == BKException.Code.OK) {
                answer(request, Main.JSON.createObjectNode().put("entry", entry));
            } else {
                answer(request, raised(BKException.create(code)));
            }
        }, null);
    }

    private static byte[] data(String text, int size) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        if (size > bytes.length) {
            int length = bytes.length;
            bytes = Arrays.copyOf(bytes, size);
            Arrays.fill(bytes, length, size, (byte) '\n');
        }
        return bytes;
    }

    private ObjectNode run(JsonNode request) throws Exception {
        Session session = session(request.get("session").asText());
        BookKeeper client = session.client;
        ObjectNode answer = Main.JSON.createObjectNode();
        long ledger = request.path("ledger").asLong();
        switch (request.get("command").asText()) {
            case "connect" -> { }
            case "create" -> {
                LedgerHandle handle = client.createLedger(
                        request.get("ensemble").asInt(), request.get("write").asInt(), request.get("ack").asInt(),
                        digest(request), password(request));
                session.written.put(handle.getId(), handle);
                answer.put("ledger", handle.getId());
            }
            case "close" -> {
                LedgerHandle handle = session.written.get(ledger);
                handle.close();
                answer.put("last", handle.getLastAddConfirmed()).put("length", handle.getLength());
            }
            case "take_over" -> {
                LedgerHandle handle = client.openLedger(ledger, digest(request), password(request));
                session.read.put(ledger, handle);
                answer.put("last", handle.getLastAddConfirmed()).put("length", handle.getLength());
            }
            case "view" -> session.read.put(
                    ledger, client.openLedgerNoRecovery(ledger, digest(request), password(request)));
            case "read" -> answer.set("entries", entries(
                    session.read.get(ledger), request.get("first").asLong(), request.get("last").asLong()));
            case "look" -> look(session.read.get(ledger), answer);
            case "delete" -> client.deleteLedger(ledger);
            case "metadata" -> metadata(client, ledger, answer);
            default -> throw new IllegalArgumentException(request.toString());
        }
        return answer;
    }

    private static byte[] password(JsonNode request) {
        return request.get("password").asText().getBytes(StandardCharsets.UTF_8);
    }

    private static DigestType digest(JsonNode request) {
        return DigestType.valueOf(request.get("digest").asText());
    }

    /** All that a reader is shown now. */
    private static void look(LedgerHandle handle, ObjectNode answer) throws Exception {
        // First, because the ledger may be closed after entries that come later.
        boolean isClosed = handle.isClosed();
        // Bookies may answer with an older one than before, and the handle may not know yet of a close.
        long confirmed = Math.max(handle.readLastConfirmed(), handle.getLastAddConfirmed());
        answer.put("lac", confirmed).set("entries", entries(handle, 0, confirmed));
        if (isClosed) {
            // The handle's own length is that of the moment when it was opened.
            LedgerMetadata metadata = handle.getLedgerMetadata();
            answer.put("last", metadata.getLastEntryId()).put("length", metadata.getLength());
        }
    }

    private static ArrayNode entries(LedgerHandle handle, long first, long last) throws Exception {
        ArrayNode found = Main.JSON.createArrayNode();
        if (first <= last) {
            Enumeration<LedgerEntry> entries = handle.readUnconfirmedEntries(first, last);
            while (entries.hasMoreElements()) {
                LedgerEntry entry = entries.nextElement();
                byte[] data = entry.getEntry();
                String text = new String(data, StandardCharsets.UTF_8).stripTrailing();
                found.addArray().add(entry.getEntryId()).add(text).add(data.length).add(entry.getLength());
            }
        }
        return found;
    }

    private static void metadata(BookKeeper client, long ledger, ObjectNode answer) throws Exception {
        LedgerMetadata metadata = client.getLedgerManager().readLedgerMetadata(ledger).get().getValue();
        answer.put("ensemble", metadata.getEnsembleSize()).put("write", metadata.getWriteQuorumSize())
                .put("ack", metadata.getAckQuorumSize()).put("state", metadata.getState().name())
                .put("digest", metadata.getDigestType().name()).put("segments", metadata.getAllEnsembles().size());
    }
}
