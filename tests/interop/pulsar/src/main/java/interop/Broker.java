package interop;

import java.util.Map;
import java.util.Optional;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.common.util.FieldParser;

/** Starts a Pulsar broker in this process, on the metadata and the bookies of a cluster. */
final class Broker {
    static final String CLUSTER = "interop";
    private static final int ENTRIES_OF_A_LEDGER = 500;

    private Broker() {
    }

    /** Return a running broker. The settings are fields of its configuration, and go before those of this class. */
    static PulsarService start(String metadata, Map<String, String> settings) throws Exception {
        ServiceConfiguration configuration = configuration(metadata);
        FieldParser.update(settings, configuration);
        PulsarService broker = new PulsarService(configuration);
        broker.start();
        return broker;
    }

    private static ServiceConfiguration configuration(String metadata) {
        ServiceConfiguration it = new ServiceConfiguration();
        it.setClusterName(CLUSTER);
        it.setMetadataStoreUrl("zk:" + metadata);
        it.setConfigurationMetadataStoreUrl("zk:" + metadata);
        it.setMetadataStoreSessionTimeoutMillis(10_000);
        it.setBindAddress("127.0.0.1");
        it.setAdvertisedAddress("127.0.0.1");
        it.setBrokerServicePort(Optional.of(0));
        it.setWebServicePort(Optional.of(0));
        it.setLoadBalancerEnabled(false);
        it.setSystemTopicEnabled(false);
        it.setTopicLevelPoliciesEnabled(false);
        it.setTransactionCoordinatorEnabled(false);
        it.setBrokerDeleteInactiveTopicsEnabled(false);
        // Every read goes to the bookies.
        it.setManagedLedgerCacheSizeMB(0);
        it.setManagedLedgerDefaultEnsembleSize(3);
        it.setManagedLedgerDefaultWriteQuorum(3);
        it.setManagedLedgerDefaultAckQuorum(2);
        it.setManagedLedgerMaxEntriesPerLedger(ENTRIES_OF_A_LEDGER);
        it.setManagedLedgerMinLedgerRolloverTimeMinutes(0);
        return it;
    }
}
