package interop;

import java.nio.charset.StandardCharsets;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;

/**
 * What an application sees whose requests the bookies do not serve, with the unmodified client.
 *
 * <p>Arguments: those of {@link ClientSteps}. Prints one line for each step.
 */
public final class ClientRefused {
    private static final byte[] PASSWORD = "secret".getBytes(StandardCharsets.UTF_8);

    private ClientRefused() {
    }

    public static void main(String[] arguments) throws Exception {
        try (BookKeeper client = new BookKeeper(ClientSteps.configuration(arguments))) {
            BookKeeper.DigestType digest = BookKeeper.DigestType.CRC32C;
            LedgerHandle ledger = client.createLedger(1, 1, 1, digest, PASSWORD);
            ClientSteps.step("add", () -> ledger.addEntry(PASSWORD));
            ClientSteps.step("last add confirmed", ledger::readLastConfirmed);
            ClientSteps.step("open", () -> client.openLedger(ledger.getId(), digest, PASSWORD).getLength());
            ClientSteps.step("open without recovery", () ->
                    client.openLedgerNoRecovery(ledger.getId(), digest, PASSWORD).getLength());
            ClientSteps.step("read", () -> ledger.readUnconfirmedEntries(0, 0).nextElement().getLength());
        }
        System.exit(0);
    }
}
