package interop;

import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.meta.ZkLedgerUnderreplicationManager;
import org.apache.zookeeper.ZooKeeper;

/** Prints the times of the last checks as BookKeeper reads them, then writes the time of the argument. */
public final class CheckTimes {

    private CheckTimes() {
    }

    public static void main(String[] arguments) throws Exception {
        var configuration = new ServerConfiguration().setMetadataServiceUri(arguments[0]);
        try (var zooKeeper = new ZooKeeper(arguments[1], 10_000, event -> { })) {
            var manager = new ZkLedgerUnderreplicationManager(configuration, zooKeeper);
            System.out.println(manager.getCheckAllLedgersCTime());
            System.out.println(manager.getPlacementPolicyCheckCTime());
            System.out.println(manager.getReplicasCheckCTime());
            long time = Long.parseLong(arguments[2]);
            manager.setCheckAllLedgersCTime(time);
            manager.setPlacementPolicyCheckCTime(time + 1);
            manager.setReplicasCheckCTime(time + 2);
        }
    }
}
