package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.buffer.ByteBuf;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.bookie.BookieException;
import org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorage.CloseableIterator;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorageFactory.DbConfigType;
import org.apache.bookkeeper.bookie.storage.ldb.KeyValueStorageRocksDB;
import org.apache.bookkeeper.bookie.storage.ldb.LedgersIndexRebuildOp;
import org.apache.bookkeeper.bookie.storage.ldb.LocationsIndexRebuildOp;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.proto.BookieProtocol;

/** Starts a real bookie on a directory, which changes the directory, and returns what the bookie serves. */
final class Serve {
    private static final long ANSWER_S = 10;
    /** The answer for an explicit LAC with a wrong digest. */
    private static final long BAD_LAC = -2;

    private final RunningBookie bookie;
    private final DbLedgerStorage storage;
    private final Map<Long, Digests> digests;

    private Serve(RunningBookie bookie, Map<Long, Digests> digests) {
        this.bookie = bookie;
        this.storage = (DbLedgerStorage) bookie.storage;
        this.digests = digests;
    }

    /**
     * `rebuild`: whether the index is first made by BookKeeper's own tools; with `handed_over`, as it is done with a
     * directory that was handed over. `ledgers`: of those whose digest and password are given the digests are
     * verified; with `wrong_key` and `right_key`, who may add to them is tried out.
     */
    static ObjectNode run(JsonNode request) throws Exception {
        ServerConfiguration conf = Bookies.configure(request.get("dir").asText());
        Map<Long, Digests> digests = digests(request.path("ledgers"));
        ObjectNode answer = Main.JSON.createObjectNode();
        ArrayNode ledgers = answer.putArray("ledgers");
        if (request.path("rebuild").asBoolean()) {
            try {
                if (request.path("handed_over").asBoolean()) {
                    rebuildHandedOver(conf);
                } else {
                    rebuildAsItLies(conf);
                }
            } catch (IOException | RuntimeException | OutOfMemoryError problem) {
                return answer.put("refused", "the index cannot be rebuilt: " + problem);
            }
        }
        try (RunningBookie bookie = new RunningBookie(conf)) {
            Serve serve = new Serve(bookie, digests);
            Map<Long, SortedSet<Long>> indexed = indexed(conf);
            SortedSet<Long> known = new TreeSet<>(indexed.keySet());
            serve.storage.getActiveLedgersInRange(0, Long.MAX_VALUE).forEach(known::add);
            for (long ledgerId : known) {
                serve.describe(ledgers.addObject(), ledgerId, indexed.getOrDefault(ledgerId, new TreeSet<>()));
            }
            for (String which : new String[] {"wrong_key", "right_key"}) {
                if (request.path(which).asBoolean()) {
                    for (JsonNode ledger : ledgers) {
                        serve.tryKey((ObjectNode) ledger, which);
                    }
                }
            }
        } catch (RunningBookie.Refused refused) {
            answer.put("refused", refused.getMessage());
        }
        return answer;
    }

    private static void rebuildAsItLies(ServerConfiguration conf) throws IOException {
        for (String index : new String[] {"ledgers", "locations"}) {
            // Both rename the index that was there, and fail where none was.
            new File(Bookies.ledgers(conf), index).mkdir();
        }
        rebuild(conf);
    }

    /** Follows docs/bookkeeper.md. */
    private static void rebuildHandedOver(ServerConfiguration conf) throws IOException {
        rebuild(conf);
        Trees.delete(Bookies.ledgers(conf).toPath().resolve("ledgers"));
    }

    /** The order matters, because the second tool takes only the ledgers in the result of the first. */
    private static void rebuild(ServerConfiguration conf) throws IOException {
        if (!new LedgersIndexRebuildOp(conf, false).initiate()) {
            throw new IOException("LedgersIndexRebuildOp has failed");
        }
        new LocationsIndexRebuildOp(conf).initiate();
    }

    private static Map<Long, Digests> digests(JsonNode ledgers) throws Exception {
        Map<Long, Digests> found = new HashMap<>();
        for (JsonNode ledger : ledgers) {
            long id = ledger.get("ledger").asLong();
            found.put(id, new Digests(id, ledger.get("digest").asText(), ledger.get("password").asText()));
        }
        return found;
    }

    /** Returns every entry in the bookie's index, because the bookie itself cannot list them. */
    private static Map<Long, SortedSet<Long>> indexed(ServerConfiguration conf) throws IOException {
        Map<Long, SortedSet<Long>> found = new TreeMap<>();
        String base = Bookies.ledgers(conf).getPath();
        try (KeyValueStorageRocksDB locations =
                        new KeyValueStorageRocksDB(base, "locations", DbConfigType.EntryLocation, conf, true);
                CloseableIterator<byte[]> keys = locations.keys()) {
            while (keys.hasNext()) {
                ByteBuffer key = ByteBuffer.wrap(keys.next());
                found.computeIfAbsent(key.getLong(), ledgerId -> new TreeSet<>()).add(key.getLong());
            }
        }
        return found;
    }

    private void describe(ObjectNode ledger, long id, SortedSet<Long> entryIds) throws Exception {
        Digests check = digests.get(id);
        ledger.put("ledger", id);
        ArrayNode entries = ledger.putArray("entries");
        ArrayNode unreadable = ledger.putArray("unreadable");
        ArrayNode mismatches = ledger.putArray("mismatches");
        for (long entryId : entryIds) {
            try {
                byte[] entry = bookie.read(id, entryId);
                entries.addArray().add(entryId).add(Bytes.sha256(entry));
                if (check != null && !check.holds(entryId, entry)) {
                    mismatches.add(entryId);
                }
            } catch (IOException | BookieException problem) {
                unreadable.addArray().add(entryId).add(problem.toString());
            }
        }
        facts(ledger, id, check);
    }

    private void facts(ObjectNode ledger, long id, Digests check) throws Exception {
        ledger.put("fenced", storage.isFenced(id));
        ledger.put("key", Bytes.hex(storage.readMasterKey(id)));
        ByteBuf packet = bookie.bookie.getExplicitLac(id);
        if (packet != null) {
            byte[] bytes = Bytes.of(packet);
            ledger.put("lac_packet", Bytes.hex(bytes));
            if (check != null) {
                ledger.put("explicit_lac", confirmed(check, bytes));
            }
        }
        try {
            byte[] last = bookie.read(id, BookieProtocol.LAST_ADD_CONFIRMED);
            ledger.put("last_entry", ByteBuffer.wrap(last).getLong(8));
        } catch (IOException nothing) {
            ledger.putNull("last_entry");
        }
    }

    private static long confirmed(Digests check, byte[] packet) {
        try {
            return check.confirmed(packet);
        } catch (BKException.BKDigestMatchException mismatch) {
            return BAD_LAC;
        }
    }

    /** Returns the answer to an ordinary add with this key. An add with a wrong key must not change anything. */
    private void tryKey(ObjectNode ledger, String which) throws Exception {
        long id = ledger.get("ledger").asLong();
        Digests known = digests.get(id);
        if (known == null) {
            return;
        }
        long next = ledger.get("last_entry").asLong(-1) + 1;
        byte[] entry = known.entry(next, next - 1, 1, new byte[] {1});
        byte[] key = known.masterKey().clone();
        if (which.equals("wrong_key")) {
            key[0] ^= 1;
        }
        ledger.put(which, added(entry, key));
    }

    private String added(byte[] entry, byte[] key) throws Exception {
        try {
            int code = bookie.add(entry, key).get(ANSWER_S, TimeUnit.SECONDS);
            return code == 0 ? "added" : "code " + code;
        } catch (BookieException refused) {
            return refused.getClass().getSimpleName();
        } catch (IOException problem) {
            // The index throws this for a wrong key if the ledger has had no add since the start.
            if (problem.getCause() instanceof BookieException.BookieIllegalOpException refused) {
                return refused.getClass().getSimpleName();
            }
            throw problem;
        }
    }
}
