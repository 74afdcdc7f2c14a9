package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.util.concurrent.FastThreadLocalThread;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.Semaphore;

/**
 * The real Apache BookKeeper behind a pipe: a command a line, an answer a line, in any order, matched by `id`.
 * Ends when its input does.
 */
public final class Main {
    static final ObjectMapper JSON = new ObjectMapper();

    private static final int WORKERS = 2;
    private static final Map<String, Command> COMMANDS = Map.of(
            "version", request -> Bookies.version(),
            "scan-journal", request -> JournalScan.of(request.get("dir").asText()),
            "scan-log", request -> LogScan.of(request.get("dir").asText()),
            "serve", Serve::run,
            "make", Make::run);

    /** Runs one command. An exception becomes the answer. */
    @FunctionalInterface
    interface Command {
        ObjectNode run(JsonNode request) throws Exception;
    }

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // A line that a library prints to standard output would be taken for an answer.
        System.setOut(System.err);
        Semaphore places = new Semaphore(WORKERS);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            places.acquire();
            // One thread per command, because bookies leave data in thread-local variables.
            new FastThreadLocalThread(() -> {
                answers.println(answer(request));
                places.release();
            }).start();
        }
        // Threads of bookies that did not start may still run.
        System.exit(0);
    }

    private static String answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        answer.set("id", request.get("id"));
        try {
            answer.set("answer", COMMANDS.get(request.get("command").asText()).run(request));
        } catch (Throwable problem) {
            StringWriter trace = new StringWriter();
            problem.printStackTrace(new PrintWriter(trace));
            answer.put("error", trace.toString());
        }
        return answer.toString();
    }
}
