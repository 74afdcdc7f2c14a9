package interop;

import com.fasterxml.jackson.databind.node.ObjectNode;

/** One entry of a workload, and whether its add was answered. */
final class MadeEntry {
    final long id;
    final byte[] bytes;
    volatile boolean acknowledged;

    private final long lastAddConfirmed;
    private final long length;
    private final int payloadSize;

    MadeEntry(long id, long lastAddConfirmed, long length, int payloadSize, byte[] bytes) {
        this.id = id;
        this.lastAddConfirmed = lastAddConfirmed;
        this.length = length;
        this.payloadSize = payloadSize;
        this.bytes = bytes;
    }

    ObjectNode manifest() {
        return Main.JSON.createObjectNode().put("entry", id).put("lac", lastAddConfirmed).put("length", length)
                .put("payload_len", payloadSize).put("sha256", Bytes.sha256(bytes));
    }
}
