package interop;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Starts our bookies, and sends them signals: the client of bookie_forks.py.
 *
 * <p>The system property <code>bookies.command</code> is its command, with blanks between the words. It ends with this
 * process, and all bookies with it.
 */
public final class BookieProcesses {
    /** The signals that a test sends. */
    public enum Signal {
        KILL(9), TERMINATE(15), CONTINUE(18), STOP(19);

        private final int number;

        Signal(int number) {
            this.number = number;
        }
    }

    private static final int ANSWER_S = 60;
    private static BookieProcesses instance;

    private final OutputStream requests;
    private final BlockingQueue<Long> answers = new LinkedBlockingQueue<>();
    private final Map<Long, CompletableFuture<Integer>> ends = new ConcurrentHashMap<>();
    private int started;

    private BookieProcesses() throws IOException {
        Process process = new ProcessBuilder(System.getProperty("bookies.command").split(" "))
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        requests = process.getOutputStream();
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        Thread reader = new Thread(() -> lines.lines().forEach(this::take), "bookie-processes");
        reader.setDaemon(true);
        reader.start();
    }

    public static synchronized BookieProcesses get() throws IOException {
        if (instance == null) {
            instance = new BookieProcesses();
        }
        return instance;
    }

    private void take(String line) {
        String[] words = line.split("\t");
        long pid = Long.parseLong(words[1]);
        if (words[0].equals("ended")) {
            ends.get(pid).complete(Integer.parseInt(words[2]));
            return;
        }
        if (words[0].equals("started")) {
            // Here and not in `start`, so that its end is known even if it comes at once. The system uses ids again.
            ends.put(pid, new CompletableFuture<>());
        }
        answers.add(pid);
    }

    private synchronized long ask(String request) throws IOException, InterruptedException {
        requests.write((request + "\n").getBytes(StandardCharsets.UTF_8));
        requests.flush();
        Long answer = answers.poll(ANSWER_S, TimeUnit.SECONDS);
        if (answer == null) {
            throw new IOException("no answer to " + request);
        }
        return answer;
    }

    /** Start a bookie with these arguments of <code>ledgerstore</code>, and append its output to the log. */
    public Running start(File log, List<String> arguments) throws IOException, InterruptedException {
        long pid = ask("start\t" + log + "\t" + String.join("\t", arguments));
        synchronized (this) {
            started++;
        }
        return new Running(pid);
    }

    /** Return how many bookies were started so far. */
    public synchronized int started() {
        return started;
    }

    /** A bookie, which may have ended. */
    public final class Running {
        private final long pid;
        private final CompletableFuture<Integer> ended;

        private Running(long pid) {
            this.pid = pid;
            this.ended = ends.get(pid);
        }

        /** Return its end: the exit code, or minus the number of the signal. */
        public CompletableFuture<Integer> ended() {
            return ended;
        }

        public void send(Signal signal) throws IOException, InterruptedException {
            ask("signal\t" + pid + "\t" + signal.number);
        }
    }
}
