package interop;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** One ledger of a workload as its writer knows it. */
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

    /** The next entry of the ledger, as its writer would send it. */
    synchronized MadeEntry next(byte[] payload) {
        length += payload.length;
        long lastAddConfirmed = confirmed();
        byte[] bytes = digests.entry(nextId, lastAddConfirmed, length, payload);
        MadeEntry entry = new MadeEntry(nextId, lastAddConfirmed, length, payload.length, bytes);
        entries.add(entry);
        nextId++;
        return entry;
    }

    /** Leaves a gap: those ids went to other bookies. */
    synchronized void skip(int count) {
        nextId += count;
    }

    synchronized void acknowledge(MadeEntry entry) {
        entry.acknowledged = true;
    }

    /** The last entry of those that are acknowledged without a gap before them; -1 where there is none. */
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

    /** `entries`: those acknowledged by now. `handed`: those that were not, and may be found all the same. */
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
