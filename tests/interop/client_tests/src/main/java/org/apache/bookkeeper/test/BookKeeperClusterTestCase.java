package org.apache.bookkeeper.test;

import interop.OurBookie;
import java.io.File;
import java.io.IOException;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.MockUncleanShutdownDetection;
import org.apache.bookkeeper.client.BookKeeperTestClient;
import org.apache.bookkeeper.common.allocator.PoolingPolicy;
import org.apache.bookkeeper.conf.AbstractConfiguration;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.conf.TestBKConfiguration;
import org.apache.bookkeeper.meta.zk.ZKMetadataDriverBase;
import org.apache.bookkeeper.metastore.InMemoryMetaStore;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieServer;
import org.apache.bookkeeper.replication.Auditor;
import org.apache.bookkeeper.replication.AutoRecoveryMain;
import org.apache.bookkeeper.replication.ReplicationWorker;
import org.apache.bookkeeper.stats.ThreadRegistry;
import org.apache.bookkeeper.util.PortManager;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooKeeper;
import org.junit.After;
import org.junit.Before;
import org.junit.Rule;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;
import org.junit.rules.TestName;
import org.junit.rules.Timeout;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The cluster of BookKeeper's own tests, with our bookies as processes.
 *
 * <p>It stands before BookKeeper's class of this name on the class path, and has the members that the test classes use.
 * A bookie that a test kills gets SIGKILL, and its node in the metadata is removed as if its session were over; one that
 * is restarted gets SIGTERM; one that sleeps gets SIGSTOP. A test that brings a Java bookie of its own has that one
 * served by BookKeeper's server, beside ours.
 */
public abstract class BookKeeperClusterTestCase {
    static final Logger LOG = LoggerFactory.getLogger(BookKeeperClusterTestCase.class);

    /**
     * The pause after the end of a bookie, in which every client of the test learns of it. Otherwise one may learn of it
     * only after the next start, because our bookies stop and start faster than Java's.
     */
    private static final int PAUSE_MS = 500;

    @Rule
    public final TestName runtime = new TestName();
    @Rule
    public final Timeout globalTimeout;

    protected String testName;
    protected final ZooKeeperCluster zkUtil;
    protected ZooKeeper zkc;
    protected String metadataServiceUri;
    protected final TmpDirs tmpDirs = new TmpDirs();
    protected final List<ServerTester> servers = new LinkedList<>();
    protected int numBookies;
    protected BookKeeperTestClient bkc;
    protected boolean useUUIDasBookieId = true;
    protected final ServerConfiguration baseConf = TestBKConfiguration.newServerConfiguration();
    protected final ClientConfiguration baseClientConf = TestBKConfiguration.newClientConfiguration();

    private static final AtomicInteger JAVA_BOOKIES_STARTED = new AtomicInteger();

    private final Queue<Throwable> asyncExceptions = new ConcurrentLinkedQueue<>();
    private boolean isAutoRecoveryEnabled;

    public BookKeeperClusterTestCase(int numBookies) {
        this(numBookies, 120);
    }

    public BookKeeperClusterTestCase(int numBookies, int testTimeoutSecs) {
        this(numBookies, 1, testTimeoutSecs);
    }

    public BookKeeperClusterTestCase(int numBookies, int numOfZKNodes, int testTimeoutSecs) {
        this.numBookies = numBookies;
        this.globalTimeout = Timeout.seconds(testTimeoutSecs);
        try {
            this.zkUtil = numOfZKNodes == 1 ? new ZooKeeperUtil() : new ZooKeeperClusterUtil(numOfZKNodes);
        } catch (IOException | KeeperException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Return how many Java bookies were started by tests so far. */
    public static int javaBookiesStarted() {
        return JAVA_BOOKIES_STARTED.get();
    }

    // ── before and after a test ──────────────────────────────────────────────────────────────────────────────────

    @Before
    @BeforeEach
    public void setUp() throws Exception {
        setUp("/ledgers");
    }

    @Before
    public void setTestNameJunit4() {
        testName = runtime.getMethodName();
    }

    @BeforeEach
    void setTestNameJunit5(TestInfo test) {
        testName = test.getDisplayName();
    }

    protected void setUp(String ledgersRootPath) throws Exception {
        InMemoryMetaStore.reset();
        setMetastoreImplClass(baseConf);
        setMetastoreImplClass(baseClientConf);
        startZKCluster();
        metadataServiceUri = getMetadataServiceUri(ledgersRootPath);
        startBKCluster(metadataServiceUri);
    }

    @After
    @AfterEach
    public void tearDown() throws Exception {
        List<Throwable> problems = new ArrayList<>(asyncExceptions);
        attempt(problems, this::stopBKCluster);
        attempt(problems, this::stopZKCluster);
        attempt(problems, tmpDirs::cleanup);
        if (!problems.isEmpty()) {
            throw new IllegalStateException("after the test", problems.get(0));
        }
    }

    @After
    public void clearMetricsThreadRegistry() throws Exception {
        ThreadRegistry.clear();
    }

    /** Something that may fail. */
    private interface Step {
        void run() throws Exception;
    }

    private static void attempt(List<Throwable> problems, Step step) {
        try {
            step.run();
        } catch (Exception problem) {
            problems.add(problem);
        }
    }

    protected void captureThrowable(Runnable work) {
        try {
            work.run();
        } catch (Throwable problem) {
            asyncExceptions.add(problem);
        }
    }

    // ── metadata ─────────────────────────────────────────────────────────────────────────────────────────────────

    protected void startZKCluster() throws Exception {
        zkUtil.startCluster();
        zkc = zkUtil.getZooKeeperClient();
    }

    protected void stopZKCluster() throws Exception {
        zkUtil.killCluster();
    }

    protected String getMetadataServiceUri(String ledgersRootPath) {
        return zkUtil.getMetadataServiceUri(ledgersRootPath);
    }

    protected String newMetadataServiceUri(String ledgersRootPath) {
        return zkUtil.getMetadataServiceUri(ledgersRootPath);
    }

    protected String newMetadataServiceUri(String ledgersRootPath, String type) {
        return zkUtil.getMetadataServiceUri(ledgersRootPath, type);
    }

    public void setMetastoreImplClass(AbstractConfiguration<?> configuration) {
        configuration.setMetastoreImplClass(InMemoryMetaStore.class.getName());
    }

    // ── the cluster ──────────────────────────────────────────────────────────────────────────────────────────────

    /** Start the bookies side by side, because most of a start is waiting. */
    protected void startBKCluster(String uri) throws Exception {
        baseConf.setMetadataServiceUri(uri);
        baseClientConf.setMetadataServiceUri(uri);
        baseClientConf.setAllocatorPoolingPolicy(PoolingPolicy.UnpooledHeap);
        if (numBookies > 0) {
            bkc = new BookKeeperTestClient(baseClientConf, new TestStatsProvider());
        }
        List<Beginning> begun = new ArrayList<>();
        for (int number = 0; number < numBookies; number++) {
            begun.add(begin(new ServerTester(newServerConfiguration())));
        }
        for (Beginning one : begun) {
            servers.add(one.await());
        }
    }

    protected void stopBKCluster() throws Exception {
        if (bkc != null) {
            bkc.close();
        }
        stopReplicationService();
        for (ServerTester tester : servers) {
            tester.kill();
        }
        servers.clear();
    }

    protected void stopAllBookies() throws Exception {
        stopAllBookies(true);
    }

    protected void stopAllBookies(boolean shutdownClient) throws Exception {
        stopReplicationService();
        for (ServerTester tester : servers) {
            tester.shutdown();
        }
        servers.clear();
        if (shutdownClient && bkc != null) {
            bkc.close();
            bkc = null;
        }
    }

    // ── configurations ───────────────────────────────────────────────────────────────────────────────────────────

    protected ServerConfiguration newServerConfiguration() throws Exception {
        File store = new File(tmpDirs.createNew("bookie", "test"), "store");
        File[] ledgers = {new File(store, "ledgers")};
        return newServerConfiguration(PortManager.nextFreePort(), new File(store, "journal"), ledgers);
    }

    protected ServerConfiguration newServerConfiguration(int port, File journalDir, File[] ledgerDirs) {
        ServerConfiguration configuration = new ServerConfiguration(baseConf);
        configuration.setBookiePort(port);
        configuration.setJournalDirName(journalDir.getPath());
        configuration.setLedgerDirNames(Arrays.stream(ledgerDirs).map(File::getPath).toArray(String[]::new));
        configuration.setEnableTaskExecutionStats(true);
        configuration.setAllocatorPoolingPolicy(PoolingPolicy.UnpooledHeap);
        return configuration;
    }

    protected ClientConfiguration newClientConfiguration() {
        return new ClientConfiguration(baseClientConf);
    }

    // ── which bookie ─────────────────────────────────────────────────────────────────────────────────────────────

    public BookieId getBookie(int index) throws Exception {
        return servers.get(index).id();
    }

    protected BookieId addressByIndex(int index) throws Exception {
        return servers.get(index).id();
    }

    protected List<BookieId> bookieAddresses() throws Exception {
        List<BookieId> ids = new ArrayList<>();
        for (ServerTester tester : servers) {
            ids.add(tester.id());
        }
        return ids;
    }

    protected List<File> bookieLedgerDirs() throws Exception {
        return servers.stream().flatMap(tester -> Arrays.stream(tester.conf.getLedgerDirs()))
            .collect(Collectors.toList());
    }

    protected List<File> bookieJournalDirs() throws Exception {
        return servers.stream().flatMap(tester -> Arrays.stream(tester.conf.getJournalDirs()))
            .collect(Collectors.toList());
    }

    protected BookieServer serverByIndex(int index) throws Exception {
        return servers.get(index).getServer();
    }

    protected ServerConfiguration confByIndex(int index) throws Exception {
        return servers.get(index).conf;
    }

    protected int indexOfServer(BookieServer server) throws Exception {
        return servers.stream().map(ServerTester::getServer).collect(Collectors.toList()).indexOf(server);
    }

    protected int lastBookieIndex() {
        return servers.size() - 1;
    }

    protected int bookieCount() {
        return servers.size();
    }

    private int indexOf(BookieId id) throws Exception {
        return bookieAddresses().indexOf(id);
    }

    private ServerTester tester(BookieId id) throws Exception {
        int index = indexOf(id);
        if (index < 0) {
            throw new IOException("there is no bookie " + id);
        }
        return servers.get(index);
    }

    public ServerConfiguration getBkConf(BookieId id) throws Exception {
        return tester(id).conf;
    }

    public boolean isCreatedFromIp(BookieId id) {
        return bkc.getBookieAddressResolver().resolve(id).getSocketAddress().toString().startsWith("/");
    }

    // ── kill, pause, restart ─────────────────────────────────────────────────────────────────────────────────────

    public ServerConfiguration killBookie(BookieId id) throws Exception {
        int index = indexOf(id);
        return index < 0 ? null : killBookie(index);
    }

    public ServerConfiguration killBookie(int index) throws Exception {
        ServerTester tester = servers.remove(index);
        tester.kill();
        Thread.sleep(PAUSE_MS);
        return tester.conf;
    }

    public ServerConfiguration killBookieAndWaitForZK(int index) throws Exception {
        String node = tester(getBookie(index)).node("");
        ServerConfiguration killed = killBookie(index);
        while (zkc.exists(node, false) != null) {
            Thread.sleep(50);
        }
        return killed;
    }

    public void setBookieToReadOnly(BookieId id) throws Exception {
        int index = indexOf(id);
        if (index >= 0) {
            servers.get(index).getServer().getBookie().getStateManager().transitionToReadOnlyMode().get();
        }
    }

    public CountDownLatch sleepBookie(BookieId id, int seconds) throws Exception {
        CountDownLatch asleep = new CountDownLatch(1);
        CountDownLatch never = new CountDownLatch(1);
        sleep(id, asleep, () -> never.await(seconds, TimeUnit.SECONDS));
        return asleep;
    }

    public void sleepBookie(BookieId id, CountDownLatch wakes) throws InterruptedException, IOException {
        CountDownLatch asleep = new CountDownLatch(1);
        sleepBookie(id, wakes, asleep);
        asleep.await();
    }

    public void sleepBookie(BookieId id, CountDownLatch wakes, CountDownLatch asleep)
            throws InterruptedException, IOException {
        sleep(id, asleep, wakes::await);
    }

    private void sleep(BookieId id, CountDownLatch asleep, Step wait) throws IOException {
        BookieServer server;
        try {
            server = tester(id).getServer();
        } catch (Exception unknown) {
            throw new IOException(unknown);
        }
        Thread sleeper = new Thread(() -> {
            try {
                server.suspendProcessing();
                if (asleep != null) {
                    asleep.countDown();
                }
                wait.run();
                server.resumeProcessing();
            } catch (Exception problem) {
                LOG.error("bookie {} was not paused", id, problem);
            }
        });
        sleeper.setDaemon(true);
        sleeper.start();
    }

    public void restartBookies() throws Exception {
        restartBookies(configuration -> configuration);
    }

    public void restartBookie(BookieId id) throws Exception {
        ServerTester stopped = tester(id);
        servers.remove(stopped);
        stopped.shutdown();
        Thread.sleep(PAUSE_MS);
        startAndAddBookie(stopped.conf);
    }

    public void restartBookies(Function<ServerConfiguration, ServerConfiguration> change) throws Exception {
        stopReplicationService();
        List<ServerTester> stopped = new ArrayList<>(servers);
        servers.clear();
        for (ServerTester tester : stopped) {
            tester.shutdown();
        }
        Thread.sleep(PAUSE_MS);
        for (ServerTester tester : stopped) {
            startAndAddBookie(change.apply(tester.conf));
        }
    }

    // ── more bookies ─────────────────────────────────────────────────────────────────────────────────────────────

    public int startNewBookie() throws Exception {
        return startNewBookieAndReturnAddress().getPort();
    }

    public BookieSocketAddress startNewBookieAndReturnAddress() throws Exception {
        return startAndAddBookie(newServerConfiguration()).getAddress();
    }

    public BookieId startNewBookieAndReturnBookieId() throws Exception {
        return startAndAddBookie(newServerConfiguration()).id();
    }

    protected ServerTester startAndAddBookie(ServerConfiguration configuration) throws Exception {
        ServerTester tester = startBookie(configuration);
        servers.add(tester);
        return tester;
    }

    protected ServerTester startAndAddBookie(ServerConfiguration configuration, Bookie bookie) throws Exception {
        ServerTester tester = startBookie(configuration, bookie);
        servers.add(tester);
        return tester;
    }

    protected ServerTester startBookie(ServerConfiguration configuration) throws Exception {
        return begin(new ServerTester(configuration)).await();
    }

    protected ServerTester startBookie(ServerConfiguration configuration, Bookie bookie) throws Exception {
        return begin(new ServerTester(configuration, bookie)).await();
    }

    private Beginning begin(ServerTester tester) throws Exception {
        if (bkc == null) {
            bkc = new BookKeeperTestClient(baseClientConf, new TestStatsProvider());
        }
        return new Beginning(tester);
    }

    /** A bookie that is started and perhaps not registered yet. */
    private final class Beginning {
        private final ServerTester tester;
        private final Future<?> registered;

        private Beginning(ServerTester tester) throws Exception {
            this.tester = tester;
            this.registered = tester.conf.isForceReadOnlyBookie()
                ? bkc.waitForReadOnlyBookie(tester.id())
                : bkc.waitForWritableBookie(tester.id());
            tester.getServer().start();
        }

        private ServerTester await() throws Exception {
            if (tester.ours != null) {
                tester.ours.awaitRegistration(registered);
            } else {
                registered.get(30, TimeUnit.SECONDS);
            }
            if (isAutoRecoveryEnabled()) {
                tester.startAutoRecovery();
            }
            return tester;
        }
    }

    // ── auto-recovery, which is BookKeeper's ─────────────────────────────────────────────────────────────────────

    public void setAutoRecoveryEnabled(boolean isEnabled) {
        isAutoRecoveryEnabled = isEnabled;
    }

    public boolean isAutoRecoveryEnabled() {
        return isAutoRecoveryEnabled;
    }

    public void startReplicationService() throws Exception {
        for (ServerTester tester : servers) {
            tester.startAutoRecovery();
        }
    }

    public void stopReplicationService() throws Exception {
        for (ServerTester tester : servers) {
            tester.stopAutoRecovery();
        }
    }

    public Auditor getAuditor(int timeout, TimeUnit unit) throws Exception {
        long giveUpAt = System.nanoTime() + unit.toNanos(timeout);
        while (System.nanoTime() < giveUpAt) {
            for (ServerTester tester : servers) {
                if (tester.audits()) {
                    // A watcher may be about to end this one, because its session was lost.
                    Thread.sleep(tester.conf.getDeathWatchInterval() + 1000L);
                    if (tester.audits()) {
                        return tester.getAuditor();
                    }
                }
            }
            Thread.sleep(100);
        }
        throw new Exception("there is no auditor");
    }

    // ── metrics of Java bookies ──────────────────────────────────────────────────────────────────────────────────

    public void resetBookieOpLoggers() {
        servers.forEach(tester -> tester.provider.clear());
    }

    public TestStatsProvider getStatsProvider(BookieId id) throws UnknownHostException {
        try {
            return tester(id).getStatsProvider();
        } catch (Exception unknown) {
            throw new IllegalArgumentException(unknown);
        }
    }

    public TestStatsProvider getStatsProvider(int index) throws Exception {
        return servers.get(index).getStatsProvider();
    }

    /** One bookie of a test: a process of ours, or the test's own Java bookie. */
    public class ServerTester {
        private final ServerConfiguration conf;
        private final TestStatsProvider provider = new TestStatsProvider();
        private final OurBookie ours;
        private final BookieServer server;
        private AutoRecoveryMain autoRecovery;

        public ServerTester(ServerConfiguration conf) throws Exception {
            this.conf = conf;
            this.ours = new OurBookie(conf);
            this.server = ours.server();
        }

        public ServerTester(ServerConfiguration conf, Bookie bookie) throws Exception {
            this.conf = conf;
            this.ours = null;
            JAVA_BOOKIES_STARTED.incrementAndGet();
            this.server = new BookieServer(conf, bookie, provider.getStatsLogger(""),
                io.netty.buffer.UnpooledByteBufAllocator.DEFAULT, new MockUncleanShutdownDetection());
        }

        private BookieId id() throws UnknownHostException {
            return BookieImpl.getBookieId(conf);
        }

        private String node(String below) throws UnknownHostException {
            return ZKMetadataDriverBase.resolveZkLedgersRootPath(conf) + "/available/" + below + id();
        }

        public void startAutoRecovery() throws Exception {
            autoRecovery = new AutoRecoveryMain(conf);
            autoRecovery.start();
        }

        public void stopAutoRecovery() {
            if (autoRecovery != null) {
                autoRecovery.shutdown();
            }
        }

        public Auditor getAuditor() {
            return autoRecovery == null ? null : autoRecovery.getAuditor();
        }

        public ReplicationWorker getReplicationWorker() {
            return autoRecovery == null ? null : autoRecovery.getReplicationWorker();
        }

        private boolean audits() {
            Auditor auditor = getAuditor();
            ReplicationWorker worker = getReplicationWorker();
            return auditor != null && auditor.isRunning() && worker != null && worker.isRunning();
        }

        public ServerConfiguration getConfiguration() {
            return conf;
        }

        public BookieServer getServer() {
            return server;
        }

        public TestStatsProvider getStatsProvider() {
            return provider;
        }

        public BookieSocketAddress getAddress() {
            try {
                return BookieImpl.getBookieAddress(conf);
            } catch (UnknownHostException unknown) {
                throw new IllegalStateException(unknown);
            }
        }

        public void shutdown() throws Exception {
            server.shutdown();
            stopAutoRecovery();
        }

        /** End it as a crash does, and its session at once, because a test does not wait for that. */
        private void kill() throws Exception {
            if (ours == null) {
                shutdown();
                return;
            }
            boolean wasRunning = ours.isRunning();
            ours.kill();
            stopAutoRecovery();
            for (String below : wasRunning ? new String[] {"", "readonly/"} : new String[0]) {
                try {
                    zkc.delete(node(below), -1);
                } catch (KeeperException gone) {
                    LOG.debug("no node of bookie {}", id(), gone);
                }
            }
        }
    }
}
