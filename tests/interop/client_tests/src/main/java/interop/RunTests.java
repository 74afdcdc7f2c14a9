package interop;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import org.apache.bookkeeper.test.BookKeeperClusterTestCase;
import org.apache.bookkeeper.test.TmpDirs;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.TagFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs test classes: their names are the lines on standard input, and each result is a line of JSON on standard output.
 * After a name, separated by tabs, may come the JUnit ids of the tests to run.
 *
 * <p>A result has the name of the test within its class, its outcome (passed, failed or skipped; planned at the
 * beginning of the class, begun when it begins), its seconds, the cause of a failure and how many bookies of ours and
 * of Java were started for it. The last line of a class has no test.
 *
 * <p>The argument <code>list</code> prints the names of the classes in BookKeeper's jar that run on a cluster.
 */
public final class RunTests implements TestExecutionListener {
    /** The tag of tests that BookKeeper's own build leaves out. */
    private static final String FLAKY = "flaky";
    private static final int FRAMES_OF_A_CAUSE = 12;

    private final ObjectMapper json = new ObjectMapper();
    private final PrintStream results;
    private final String className;
    private TestPlan plan;
    private long beganAt;
    private int startedBefore;
    private int javaStartedBefore;

    private RunTests(PrintStream results, String className) {
        this.results = results;
        this.className = className;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream results = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        if (arguments.length > 0) {
            clusterTests().forEach(results::println);
            return;
        }
        Launcher launcher = LauncherFactory.create();
        BufferedReader names = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = names.readLine(); line != null; line = names.readLine()) {
            String[] words = line.split("\t");
            RunTests listener = new RunTests(results, words[0]);
            launcher.execute(LauncherDiscoveryRequestBuilder.request().selectors(selectors(words))
                .filters(TagFilter.excludeTags(FLAKY)).build(), listener);
            listener.print(Map.of("class", words[0]));
        }
        System.exit(0); // because threads of failed tests may be alive
    }

    private static List<? extends DiscoverySelector> selectors(String[] words) {
        return words.length == 1
            ? List.of(selectClass(words[0]))
            : Arrays.stream(words).skip(1).map(DiscoverySelectors::selectUniqueId).toList();
    }

    private static List<String> clusterTests() throws IOException {
        String jar = TmpDirs.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        List<String> found = new ArrayList<>();
        try (JarFile classes = new JarFile(jar)) {
            for (JarEntry entry : Collections.list(classes.entries())) {
                if (entry.getName().endsWith(".class") && !entry.getName().contains("$")) {
                    String name = entry.getName().replace(".class", "").replace('/', '.');
                    if (isClusterTest(name)) {
                        found.add(name);
                    }
                }
            }
        }
        return found;
    }

    private static boolean isClusterTest(String name) {
        try {
            Class<?> found = Class.forName(name, false, RunTests.class.getClassLoader());
            return BookKeeperClusterTestCase.class.isAssignableFrom(found)
                && !Modifier.isAbstract(found.getModifiers());
        } catch (ClassNotFoundException | NoClassDefFoundError notHere) {
            return false; // it needs a library that only tests of other parts need
        }
    }

    @Override
    public void testPlanExecutionStarted(TestPlan begun) {
        plan = begun;
        plan.getRoots().stream().flatMap(root -> plan.getDescendants(root).stream()).filter(TestIdentifier::isTest)
            .forEach(test -> print(result(test, "planned", 0, "")));
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        if (test.isTest()) {
            print(result(test, "begun", 0, ""));
            beganAt = System.nanoTime();
            startedBefore = started();
            javaStartedBefore = BookKeeperClusterTestCase.javaBookiesStarted();
        }
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        if (test.isTest()) {
            print(result(test, "skipped", 0, reason));
            return;
        }
        for (TestIdentifier child : plan.getChildren(test)) {
            executionSkipped(child, reason);
        }
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult found) {
        String why = found.getThrowable().map(RunTests::cause).orElse("");
        if (test.isTest()) {
            String outcome = switch (found.getStatus()) {
                case SUCCESSFUL -> "passed";
                case ABORTED -> "skipped";
                case FAILED -> "failed";
            };
            print(result(test, outcome, (System.nanoTime() - beganAt) / 1e9, why));
        } else if (found.getStatus() != TestExecutionResult.Status.SUCCESSFUL) {
            print(result(test, "failed", 0, why));
        }
    }

    private Map<String, Object> result(TestIdentifier test, String outcome, double seconds, String why) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("class", className);
        found.put("test", name(test));
        found.put("id", test.getUniqueId());
        found.put("outcome", outcome);
        found.put("seconds", Math.round(seconds * 1000) / 1000.0);
        found.put("bookies", started() - startedBefore);
        found.put("java_bookies", BookKeeperClusterTestCase.javaBookiesStarted() - javaStartedBefore);
        found.put("why", why);
        return found;
    }

    /** Return the display names of a test and of its containers within the class. */
    private String name(TestIdentifier test) {
        Deque<String> names = new ArrayDeque<>();
        TestIdentifier at = test;
        while (at != null && !at.getSource().filter(ClassSource.class::isInstance).isPresent()) {
            names.addFirst(at.getDisplayName());
            at = plan.getParent(at).orElse(null);
        }
        return at == null || names.isEmpty() ? "(class)" : String.join(" ", names);
    }

    private static String cause(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable one = error; one != null; one = one.getCause()) {
            text.append(one).append('\n').append(Arrays.stream(one.getStackTrace()).limit(FRAMES_OF_A_CAUSE)
                .map(frame -> "    at " + frame + "\n").collect(Collectors.joining()));
        }
        return text.toString();
    }

    private static int started() {
        try {
            return BookieProcesses.get().started();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void print(Map<String, Object> found) {
        try {
            results.println(json.writeValueAsString(found));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
