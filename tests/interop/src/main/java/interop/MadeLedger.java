package interop;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** One ledger of a workload in its writer's state. */
final class MadeLedger {
    private static final String[] DIGEST_TYPES = {"CRC32C", "CRC32", "MAC", "DUMMY"};
    private static final String[] PASSWORDS = {"", "secret", "öffne dich"};

    final long id;
    final Digests digests;
    boolean fenced;
    Long explicitLac;

    private final String digestType;
    private final String password;
    private final List<MadeEntry> entries = new ArrayList<>();
    private long nextId;
    private long length;

    MadeLedger(long id, Random dice) throws GeneralSecurityException {
        this.id = id;
        digestType = DIGEST_TYPES[dice.nextInt(DIGEST_TYPES.length)];
        password = PASSWORDS[dice.nextInt(PASSWORDS.length)];
        digests = new Digests(id, digestType, password);
    }

    /** Returns the next entry of the ledger in the form in which its writer sends it. */
    synchronized MadeEntry next(byte[] payload) {
        length += payload.length;
        long lastAddConfirmed = confirmed();
        byte[] bytes = digests.entry(nextId, lastAddConfirmed, length, payload);
        MadeEntry entry = new MadeEntry(nextId, lastAddConfirmed, length, payload.length, bytes);
        entries.add(entry);
        nextId++;
        return entry;
    }

    /** Leaves a gap of ids, as if those entries went to other bookies. */
    synchronized void skip(int count) {
        nextId += count;
    }

    synchronized void acknowledge(MadeEntry entry) {
        entry.acknowledged = true;
    }

    /** Returns the last acknowledged entry without a gap before it, or -1. */
    synchronized long confirmed() {
        long last = -1;
        for (MadeEntry entry : entries) {
            if (!entry.acknowledged) {
                break;
            }
            last = entry.id;
        }
        return last;
    }

    /** `entries`: acknowledged by now. `handed`: sent and not acknowledged; they may be found or not. */
    synchronized ObjectNode manifest() {
        ObjectNode manifest = Main.JSON.createObjectNode().put("ledger", id).put("digest_type", digestType)
                .put("password", password).put("master_key", Bytes.hex(digests.masterKey()))
                .put("fenced", fenced).put("explicit_lac", explicitLac);
        ArrayNode acknowledged = manifest.putArray("entries");
        ArrayNode handed = manifest.putArray("handed");
        for (MadeEntry entry : entries) {
            (entry.acknowledged ? acknowledged : handed).add(entry.manifest());
        }
        return manifest;
    }
}
