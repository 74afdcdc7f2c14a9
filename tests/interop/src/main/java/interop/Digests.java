package interop;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.proto.LedgerMetadataFormat.DigestType;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.util.ByteBufList;

/** The entries of one ledger, as BookKeeper's client makes and checks them. */
final class Digests {
    private final DigestManager manager;
    private final byte[] masterKey;

    Digests(long ledgerId, String digestType, String password) throws GeneralSecurityException {
        byte[] bytes = password.getBytes(StandardCharsets.UTF_8);
        DigestType type = digestType.equals("MAC") ? DigestType.HMAC : DigestType.valueOf(digestType);
        manager = DigestManager.instantiate(ledgerId, bytes, type, UnpooledByteBufAllocator.DEFAULT, false);
        masterKey = DigestManager.generateMasterKey(bytes);
    }

    byte[] masterKey() {
        return masterKey;
    }

    byte[] entry(long entryId, long lastAddConfirmed, long length, byte[] payload) {
        Object made = manager.computeDigestAndPackageForSending(
                entryId, lastAddConfirmed, length, Unpooled.wrappedBuffer(payload), masterKey, 0);
        return bytes((ByteBufList) made);
    }

    byte[] lac(long lastAddConfirmed) {
        return bytes(manager.computeDigestAndPackageForSendingLac(lastAddConfirmed));
    }

    boolean holds(long entryId, byte[] entry) {
        try {
            ByteBuf payload = manager.verifyDigestAndReturnData(entryId, Unpooled.wrappedBuffer(entry));
            return payload != null;
        } catch (BKException.BKDigestMatchException mismatch) {
            return false;
        }
    }

    /** Returns the value of an explicit LAC. Throws if it belongs to another ledger. */
    long confirmed(byte[] packet) throws BKException.BKDigestMatchException {
        return manager.verifyDigestAndReturnLac(Unpooled.wrappedBuffer(packet));
    }

    private static byte[] bytes(ByteBufList list) {
        ByteBuf joined = ByteBufList.coalesce(list);
        byte[] bytes = Bytes.of(joined);
        joined.release();
        return bytes;
    }
}
