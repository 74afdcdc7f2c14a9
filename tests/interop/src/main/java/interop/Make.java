package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.bookie.Cookie;
import org.apache.bookkeeper.bookie.InterleavedLedgerStorage;
import org.apache.bookkeeper.bookie.SortedLedgerStorage;
import org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage;
import org.apache.bookkeeper.conf.ServerConfiguration;

/**
 * A seeded workload on a real bookie. It leaves the bookie's directory and returns what was acknowledged.
 *
 * <p>The last run ends as `end` says: `clean` by a shutdown, `halt` with the files as they lay while the bookie was
 * up, `inflight` the same with adds on their way. Earlier runs end either way, as the seed says.
 */
final class Make {
    private static final int STEPS_MIN = 10;
    private static final int STEPS_MORE = 30;
    private static final int[] SIZES = {0, 1, 40, 40, 200, 900, 4000};
    private static final int LARGE = 60_000;
    private static final int BURST = 40;
    private static final int BURST_SIZE = 300;
    private static final String INSTANCE = "interop";

    private final Path root;
    private final JsonNode request;
    private final Random dice;
    private final List<MadeLedger> ledgers = new ArrayList<>();
    private RunningBookie bookie;
    private ObjectNode manifest;

    private Make(JsonNode request) throws Exception {
        this.root = Path.of(request.get("dir").asText(), "bookie");
        this.request = request;
        this.dice = new Random(request.get("seed").asLong());
        for (long id : new long[] {1, 2, 3 + dice.nextInt(5), 1L << 40 | dice.nextInt(1 << 20)}) {
            ledgers.add(new MadeLedger(id, dice));
        }
    }

    static ObjectNode run(JsonNode request) throws Exception {
        return new Make(request).play();
    }

    private ObjectNode play() throws Exception {
        ServerConfiguration conf = configure();
        int runs = request.path("runs").asInt(1);
        for (int run = 1; run < runs; run++) {
            play(conf, dice.nextBoolean() ? "clean" : "halt");
        }
        play(conf, request.get("end").asText());
        return manifest;
    }

    private void play(ServerConfiguration conf, String end) throws Exception {
        bookie = new RunningBookie(conf);
        // A bookie's server does this before the start.
        Cookie cookie = Cookie.generateCookie(conf).setInstanceId(INSTANCE).build();
        cookie.writeToDirectory(Bookies.journal(conf));
        cookie.writeToDirectory(Bookies.ledgers(conf));
        for (int steps = STEPS_MIN + dice.nextInt(STEPS_MORE); steps > 0; steps--) {
            step();
        }
        if (end.equals("clean")) {
            manifest = describe();
            bookie.close();
        } else {
            halt(end.equals("inflight"));
        }
    }

    /** Copies the files while the bookie is running, and ends the bookie in its own directory. */
    private void halt(boolean isBusy) throws Exception {
        Path halted = root.resolveSibling("halted");
        List<CompletableFuture<Integer>> onTheirWay = isBusy ? send(pick(), BURST, BURST_SIZE) : List.of();
        manifest = describe();
        Trees.copyLive(root, halted);
        for (CompletableFuture<Integer> one : onTheirWay) {
            check(one);
        }
        bookie.close();
        Trees.delete(root);
        Files.move(halted, root);
    }

    private ServerConfiguration configure() {
        String storage = switch (request.get("storage").asText()) {
            case "db" -> DbLedgerStorage.class.getName();
            case "sorted" -> SortedLedgerStorage.class.getName();
            case "interleaved" -> InterleavedLedgerStorage.class.getName();
            default -> throw new IllegalArgumentException("storage");
        };
        for (String directory : new String[] {"journal", "ledgers"}) {
            new File(root.toFile(), directory + "/current").mkdirs();
        }
        ServerConfiguration conf = Bookies.configure(root.toString(), storage);
        conf.setJournalFormatVersionToWrite(request.get("journal").asInt());
        conf.setEntryLogFilePreAllocationEnabled(dice.nextBoolean());
        conf.setProperty(DbLedgerStorage.DIRECT_IO_ENTRYLOGGER, request.path("direct").asBoolean());
        return conf;
    }

    // ── the steps ────────────────────────────────────────────────────────────────────────────────────────────

    private void step() throws Exception {
        MadeLedger ledger = pick();
        int choice = dice.nextInt(100);
        if (choice < 70) {
            int size = SIZES[dice.nextInt(SIZES.length)];
            for (CompletableFuture<Integer> added : send(ledger, 1 + dice.nextInt(8), size)) {
                check(added);
            }
        } else if (choice < 78) {
            bookie.checkpoint();
        } else if (choice < 86) {
            confirm(ledger);
        } else if (choice < 90) {
            bookie.fence(ledger.id, ledger.digests.masterKey());
            ledger.fenced = true;
        } else if (choice < 93) {
            ledger.skip(1 + dice.nextInt(5));
        } else if (choice < 95) {
            check(send(ledger, 1, LARGE).get(0));
        }
    }

    private MadeLedger pick() {
        return ledgers.get(dice.nextInt(ledgers.size()));
    }

    /** Adds several entries at once like a pipelining writer; to a fenced ledger as recovery adds. */
    private List<CompletableFuture<Integer>> send(MadeLedger ledger, int count, int size) throws Exception {
        List<CompletableFuture<Integer>> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            byte[] payload = new byte[size == 0 ? 0 : 1 + dice.nextInt(size)];
            dice.nextBytes(payload);
            MadeEntry entry = ledger.next(payload);
            byte[] key = ledger.digests.masterKey();
            CompletableFuture<Integer> added =
                    ledger.fenced ? bookie.recoveryAdd(entry.bytes, key) : bookie.add(entry.bytes, key);
            sent.add(added.whenComplete((code, problem) -> ledger.acknowledge(entry)));
        }
        return sent;
    }

    private void confirm(MadeLedger ledger) throws Exception {
        long confirmed = ledger.confirmed();
        if (confirmed >= 0) {
            check(bookie.setExplicitLac(ledger.digests.lac(confirmed), ledger.digests.masterKey()));
            ledger.explicitLac = confirmed;
        }
    }

    private static void check(CompletableFuture<Integer> answer) throws Exception {
        if (answer.get() != 0) {
            throw new IOException("an add was answered with " + answer.get());
        }
    }

    // ── what was acknowledged ────────────────────────────────────────────────────────────────────────────────

    /** Returns what must be found again if the bookie ends at this moment. */
    private ObjectNode describe() {
        ObjectNode described = Main.JSON.createObjectNode();
        ArrayNode list = described.putArray("ledgers");
        for (MadeLedger ledger : ledgers) {
            list.add(ledger.manifest());
        }
        return described;
    }
}
