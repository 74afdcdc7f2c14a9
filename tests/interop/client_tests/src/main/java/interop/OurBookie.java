package interop;

import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.withSettings;

import interop.BookieProcesses.Signal;
import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.BookieStateManager;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.proto.BookieServer;
import org.apache.bookkeeper.tls.SecurityException;

/** One of our bookies, for the configuration of a Java bookie. */
public final class OurBookie {
    private static final int START_S = 60;
    private static final int STOP_S = 30;
    private static final Pattern HTTP_ADDRESS = Pattern.compile("metrics and state on (http://[^\\s/]+)");
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    private final ServerConfiguration configuration;
    private final BookieServer server;
    private BookieProcesses.Running process;

    public OurBookie(ServerConfiguration configuration) {
        this.configuration = configuration;
        this.server = mock(BookieServer.class, withSettings().stubOnly().defaultAnswer(
            call -> answer(call.getMethod())));
    }

    /** Return an object that a test may take for the server of a Java bookie. What has no equivalent, it refuses. */
    public BookieServer server() {
        return server;
    }

    private Object answer(Method method) throws Exception {
        switch (method.getName()) {
            case "getBookieId":
                return BookieImpl.getBookieId(configuration);
            case "getLocalAddress":
                return BookieImpl.getBookieAddress(configuration);
            case "start":
                start();
                return null;
            case "shutdown":
                stop();
                return null;
            case "isRunning":
            case "isBookieRunning":
                return isRunning();
            case "suspendProcessing":
                process.send(Signal.STOP);
                return null;
            case "resumeProcessing":
                process.send(Signal.CONTINUE);
                return null;
            case "getBookie":
                return part(BookieImpl.class);
            case "getStateManager":
                return part(BookieStateManager.class);
            case "transitionToReadOnlyMode":
                makeReadOnly();
                return CompletableFuture.completedFuture(null);
            case "doTransitionToReadOnlyMode":
                makeReadOnly();
                return null;
            case "toString":
                return "our bookie";
            default:
                throw new UnsupportedOperationException(
                    "our bookie is a process, and has no " + method.getName());
        }
    }

    private <T> T part(Class<T> type) {
        return mock(type, withSettings().stubOnly().defaultAnswer(call -> answer(call.getMethod())));
    }

    /** Order the bookie to refuse the adds of writers. Return when it is registered as read-only. */
    private void makeReadOnly() throws Exception {
        HttpRequest.Builder order = HttpRequest.newBuilder(http("/api/v1/bookie/state/readonly"));
        ask(order.PUT(HttpRequest.BodyPublishers.ofString("{\"readOnly\": true}")).build());
        HttpRequest state = HttpRequest.newBuilder(http("/state")).build();
        long giveUpAt = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_S);
        while (!ask(state).contains("\"registered\": \"read-only\"")) {
            if (System.nanoTime() > giveUpAt) {
                throw new IOException("our bookie is not read-only after " + START_S + " s: " + said());
            }
            Thread.sleep(50);
        }
    }

    private static String ask(HttpRequest request) throws IOException, InterruptedException {
        HttpResponse<String> answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new IOException(request + ": " + answer.statusCode() + " " + answer.body());
        }
        return answer.body();
    }

    /** Return the address of a page of the bookie, whose port the system has chosen. */
    private URI http(String path) throws IOException {
        Matcher address = HTTP_ADDRESS.matcher(said());
        String found = null;
        while (address.find()) {
            found = address.group(1); // the last start counts
        }
        return URI.create(found + path);
    }

    /** Start the process with the configuration of the test. It registers later. */
    public void start() throws IOException, InterruptedException {
        Files.createDirectories(store().toPath());
        File file = new File(store().getPath() + ".conf");
        Files.write(file.toPath(), (Iterable<String>) lines()::iterator, StandardCharsets.ISO_8859_1);
        process = BookieProcesses.get().start(log(), List.of("bookie", store().getPath(), "--conf", file.getPath()));
    }

    private Stream<String> lines() {
        Map<String, String> values = new TreeMap<>();
        configuration.getKeys().forEachRemaining(
            key -> values.put(key, String.join(",", configuration.getStringArray(key))));
        // The two of a test in which a Java bookie would have one directory for both.
        values.put("journalDirectories", store().getPath() + "/journal");
        values.put("ledgerDirectories", store().getPath() + "/ledgers");
        values.remove("journalDirectory");
        values.put("httpServerEnabled", "true");
        values.put("httpServerPort", "0");
        // BookKeeper's tests allow an old version of TLS beside the one that they use. Our bookie refuses to start.
        values.computeIfPresent("tlsEnabledProtocols", (key, versions) -> versions.replace(",TLSv1.1", ""));
        return values.entrySet().stream().map(entry -> entry.getKey() + "=" + entry.getValue());
    }

    /** Return the directory of the store, so that its entry logs are where the configuration says. */
    private File store() {
        File ledgers = new File(configuration.getLedgerDirNames()[0]);
        return ledgers.getName().equals("ledgers") ? ledgers.getParentFile() : new File(ledgers, "store");
    }

    private File log() {
        return new File(store().getPath() + ".log");
    }

    /** Return when the bookie has registered; the future says when the metadata show it. */
    public void awaitRegistration(Future<?> registered) throws Exception {
        long giveUpAt = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_S);
        while (true) {
            try {
                registered.get(50, TimeUnit.MILLISECONDS);
                return;
            } catch (TimeoutException notYet) {
                if (!isRunning()) {
                    throw refusal();
                }
                if (System.nanoTime() > giveUpAt) {
                    throw new IOException("our bookie is not registered after " + START_S + " s: " + said());
                }
            }
        }
    }

    /** Return why the process has ended, as the exception that a Java bookie would have thrown. */
    private Exception refusal() throws IOException {
        String reason = "our bookie has ended with " + process.ended().getNow(null) + ": " + said();
        return configuration.getTLSProviderFactoryClass() == null
            ? new IOException(reason) : new SecurityException(reason);
    }

    private String said() throws IOException {
        return Files.readString(log().toPath());
    }

    public boolean isRunning() {
        return process != null && !process.ended().isDone();
    }

    /** Stop it in order. */
    public void stop() throws IOException, InterruptedException, ExecutionException, TimeoutException {
        end(Signal.TERMINATE);
    }

    /** End it as a crash does. Its registration stays until its session is over. */
    public void kill() throws IOException, InterruptedException, ExecutionException, TimeoutException {
        end(Signal.KILL);
    }

    private void end(Signal signal)
            throws IOException, InterruptedException, ExecutionException, TimeoutException {
        if (isRunning()) {
            process.send(signal);
            process.send(Signal.CONTINUE);
            process.ended().get(STOP_S, TimeUnit.SECONDS);
        }
    }
}
